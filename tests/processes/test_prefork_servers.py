"""Real web servers whose workers are forked, or started, after the application has used its database."""

from __future__ import annotations

import socket

import httpx
import pytest

from holdfast import Holdfast
from tests.support.processes import Process, Processes
from tests.support.waiting import until

APP = "tests.apps.preloaded"
REQUESTS = 24


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


async def answers(server: Process, port: int) -> list[int]:
    """How many jobs each request saw; one connection each, so that all workers get some."""
    found = []
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, headers={"Connection": "close"}) as client:

        async def is_up() -> bool:
            assert server.returncode is None, server.output
            try:
                return (await client.get("/")).status_code == 200
            except httpx.TransportError:
                return False

        await until(is_up)
        for _ in range(REQUESTS):
            answer = await client.get("/")
            assert answer.status_code == 200, server.output
            found.append(int(answer.text))
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:{port}", f"{APP}:wsgi"),
        ("gunicorn", "--preload", "--workers", "2", "--threads", "3", "--bind", "127.0.0.1:{port}", f"{APP}:wsgi"),
        ("gunicorn", "--preload", "--workers", "2", "--worker-class", "asgi", "--bind", "127.0.0.1:{port}", f"{APP}:asgi"),
        ("uvicorn", "--workers", "2", "--port", "{port}", f"{APP}:asgi"),
    ],
    ids=["gunicorn", "gunicorn-threads", "gunicorn-asgi", "uvicorn"],
)
async def test_workers_of_a_server_use_what_was_used_before_they_were_forked(
    processes: Processes, hf: Holdfast, database_url: str, arguments: tuple[str, ...]
) -> None:
    """Each request is answered, sees every job before it, and the server ends when it is told to."""
    port = free_port()
    command = [argument.format(port=port) for argument in arguments]
    server = processes.python("-m", *command, env={"HOLDFAST_DATABASE_URL": database_url})
    found = await answers(server, port)
    assert found == sorted(set(found))
    assert len(await hf.jobs(limit=200)) >= found[-1] > REQUESTS
    server.terminate()
    assert await server.exited() in (0, -15), server.output
