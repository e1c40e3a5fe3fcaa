"""`holdfast server` as a process: real sockets, a database that goes away, and an end with open streams."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from tests.support.postgres import OwnServer
from tests.support.processes import ROOT, Process, Processes
from tests.support.waiting import until
from tests.web.people import key_of

APP = "tests.apps.served:hf"
JOB = {"task": "greet", "args": {"name": "ana"}}


async def address_of(server: Process) -> str:
    await server.printed("Serving http://", timeout=60)
    found = re.search(r"Serving (http://\S+)", server.output)
    assert found
    return found[1]


def speaking(address: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60)


async def test_a_server_ends_cleanly_with_open_streams(hf: Holdfast, database_url: str, processes: Processes) -> None:
    """A stream carries lines over a real connection; SIGTERM ends it within a moment, and the exit code is 0."""
    key = await key_of(hf, "member")
    server = processes.holdfast("server", "--port", "0", app=APP, database_url=database_url)
    async with speaking(await address_of(server), key) as client:
        job = (await client.post("/api/jobs", json=JOB)).json()
        lines: list[str] = []

        async def watch(path: str) -> None:
            async with client.stream("GET", path) as stream:
                async for line in stream.aiter_lines():
                    lines.append(line)

        log = asyncio.create_task(watch(f"/api/jobs/{job['id']}/runs/1/logs/stream"))
        changes = asyncio.create_task(watch("/api/jobs/stream"))
        await until(lambda: sum(line.startswith("retry:") for line in lines) == 2)
        worker = processes.worker("--exit-when-idle", "0", app=APP, database_url=database_url)
        assert await worker.exited(40) == 0
        await until(lambda: "event: end" in lines)
        await log
        assert any(line.startswith("data:") and json.loads(line[5:]).get("message") == "greeting ana" for line in lines)
        server.terminate()
        assert await server.exited(40) == 0
        await asyncio.wait_for(changes, 60)
    assert "Traceback" not in server.output


@pytest.mark.case("I15")
async def test_a_database_away_at_enqueue_is_502_and_works_again_after(own_postgres: OwnServer, processes: Processes) -> None:
    """Nothing is queued, nothing is told of the database, and no restart is needed."""
    hf = Holdfast(own_postgres.url)
    await hf.migrate()
    key = await key_of(hf, "member")
    server = processes.holdfast("server", "--port", "0", app=APP, database_url=own_postgres.url)
    async with speaking(await address_of(server), key) as client:
        assert (await client.post("/api/jobs", json=JOB)).status_code == 202
        own_postgres.stop()
        away = await client.post("/api/jobs", json=JOB)
        assert (away.status_code, away.json()["code"]) == (502, "storage_unavailable")
        assert "postgresql://" not in away.text
        own_postgres.start()

        async def accepted() -> bool:
            return (await client.post("/api/jobs", json=JOB)).status_code == 202

        await until(accepted, timeout=60)
    await hf.aclose()
    again = Holdfast(own_postgres.url)
    assert (await again.store.job_counts())["queued"] == 2
    await again.aclose()


async def test_a_server_that_nobody_could_log_in_to_does_not_start(database_url: str, processes: Processes) -> None:
    """It says what to do instead."""
    server = processes.holdfast("server", "--port", "0", app=APP, database_url=database_url)
    assert await server.exited(40) == 2
    assert "holdfast keys create" in server.output and "Serving" not in server.output


async def test_dev_serves_the_api_on_this_machine(sqlite_url: str, processes: Processes) -> None:
    """At an address that it prints, closed to whoever has no key: it says how to make one, which then works. The link that it
    prints logs a browser in to the dashboard."""
    dev = processes.holdfast("dev", "--port", "0", app=APP, database_url=sqlite_url)
    address = await address_of(dev)
    assert address.startswith("http://127.0.0.1:") and "holdfast keys create --service" in dev.output
    async with httpx.AsyncClient(base_url=address, timeout=60) as nobody:
        assert (await nobody.get("/api/jobs")).status_code == 401
        await dev.printed("/login#", timeout=60)
        secret = dev.output.split("/login#")[1].split()[0]
        assert (await nobody.post("/login", data={"link": secret})).status_code == 303
        assert (await nobody.get("/workers")).status_code == 200
    hf = Holdfast(sqlite_url)
    async with speaking(address, await key_of(hf, "member")) as client:
        job = (await client.post("/api/jobs", json=JOB)).json()

        async def completed() -> bool:
            return (await client.get(f"/api/jobs/{job['id']}")).json()["state"] == "completed"

        await until(completed, timeout=60)
    await hf.aclose()
    dev.signal_group(signal.SIGINT)
    assert await dev.exited(40) == 0
    assert "Traceback" not in dev.output


async def test_dev_goes_on_without_what_the_api_needs(sqlite_url: str, processes: Processes, tmp_path: Path) -> None:
    """It says how to get it, and runs jobs all the same."""
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')")
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}/src:{ROOT}", "HOLDFAST_MACHINE_PROVIDER": "none"}  # one worker, all the time
    dev = processes.holdfast("dev", app=APP, database_url=sqlite_url, env=env)
    await dev.printed("pip install 'holdfast[web]'", timeout=60)
    await dev.printed("Worker ", timeout=60)
    dev.signal_group(signal.SIGINT)
    assert await dev.exited(40) == 0


async def test_a_port_that_is_taken_is_told(hf: Holdfast, database_url: str, processes: Processes) -> None:
    """In one sentence."""
    await key_of(hf, "member")
    first = processes.holdfast("server", "--port", "0", app=APP, database_url=database_url)
    port = (await address_of(first)).rpartition(":")[2]
    second = processes.holdfast("server", "--port", port, app=APP, database_url=database_url)
    assert await second.exited(40) == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in second.output and "Traceback" not in second.output
