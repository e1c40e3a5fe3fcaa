"""Servers that are measured: ours, and one that only inserts a row. Both are one uvicorn process with the same settings."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn

from bench.app import make_app
from bench.floor import Floor, PostgresFloor, SqliteFloor
from bench.places import path_of


async def serve(url: str, port: str) -> dict[str, Any]:
    app = make_app(url)
    await _run(app.asgi(), int(port))
    await app.aclose()
    return {}


async def serve_floor(url: str, port: str) -> dict[str, Any]:
    floor: Floor = SqliteFloor(path_of(url)) if url.startswith("sqlite:") else PostgresFloor(url)
    await floor.open()

    async def insert(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await floor.insert_one()
        await send({"type": "http.response.start", "status": 202, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"{}"})

    await _run(insert, int(port))
    await floor.close()
    return {}


async def _run(app: Any, port: int) -> None:
    """Until the input ends."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off", backlog=2048)
    )
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110  (uvicorn has no event for it)
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving
