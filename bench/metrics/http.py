"""The HTTP API: enqueue beside an endpoint that only inserts a row, and lists of jobs in small and large tables.

The load comes from plain sockets that stay open: a client library would cost more than the server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

from bench.app import make_app
from bench.metrics.flat import Fill, fill
from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan
from bench.processes import Child

CONNECTIONS = 32
SECONDS = 3.0
LISTS = 150
SMALL = 1_000
BODY = b'{"task": "noop", "args": {"number": 1}}'


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    os.environ["HOLDFAST_API_RATE"] = "1000000000"  # the limit is counted all the same, and never reached
    lines = []
    for place in places:
        lines += await _enqueue(place, plan)
        lines += await _lists(place, plan)
    return lines


async def _enqueue(place: Place, plan: Plan) -> list[Line]:
    url, floor_url = await place.fresh(), await place.fresh()
    floor = place.floor(floor_url)
    await floor.open()
    await floor.create()
    await floor.close()
    service, member = await _key(url, None, "service"), await _key(url, "acme", "member")
    async with _served("serve", url) as port, _served("serve-floor", floor_url) as floor_port:
        posts = [_post(port, service), _post(port, member), _post(floor_port, "")]
        found, calibrations = await alternate(plan.runs, *posts)
    floors = {"one INSERT, nothing else": found[2]}
    return [
        Line(
            metric="http", store=place.name, title=f"enqueue over HTTP, {who}", unit="requests/s", ours=ours, floors=floors,
            calibrations=calibrations,
        )
        for who, ours in (("service key", found[0]), ("tenant's key, rate counted", found[1]))
    ]  # fmt: skip


async def _lists(place: Place, plan: Plan) -> list[Line]:
    rows = plan.flat_rows
    mine, others = Fill(SMALL, state="completed", tenant="'acme'"), Fill(rows, state="completed", tenant="'t' || (i % 100)")
    scenes = {
        f"{SMALL:,} jobs": [mine],
        f"{rows:,} jobs of this tenant": [Fill(rows, state="completed", tenant="'acme'")],
        f"{rows:,} jobs of others": [others, mine],
    }
    lines = []
    async with AsyncExitStack() as servers:
        asked: dict[str, tuple[int, str]] = {}
        for title, fills in scenes.items():
            url = await place.fresh()
            await fill(url, fills)
            await place.settle(url)
            asked[title] = await servers.enter_async_context(_served("serve", url)), await _key(url, "acme", "viewer")
        for query in ("limit=50", "limit=50&state=failed"):
            found, calibrations = await alternate(plan.runs, *(_get(port, key, query) for port, key in asked.values()))
            for title, ours in list(zip(asked, found, strict=True))[1:]:
                line = Line(
                    metric="http", store=place.name, title=f"GET /api/jobs?{query}, {title}", unit="ms", ours=ours,
                    floors={f"{SMALL:,} jobs": found[0]}, calibrations=calibrations,
                )  # fmt: skip
                lines.append(line)
    return lines


async def _key(url: str, tenant: str | None, role: str) -> str:
    app = make_app(url)
    if tenant is not None:
        await app.tenants.set(tenant, queue_depth=2**31 - 1)
    made = await app.keys.create(tenant=tenant, role=role)
    await app.aclose()
    return made.secret


@asynccontextmanager
async def _served(part: str, url: str) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    child = await Child.start(part, url, str(port))
    await child.ready()
    try:
        yield port
    finally:
        child.end_input()
        await child.answer()


def _request(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, expected: bytes) -> None:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    body = await reader.readexactly(length)
    if not head.startswith(b"HTTP/1.1 " + expected):
        raise RuntimeError(f"The server answered {head[:20]!r} {body[:300]!r}")


def _post(port: int, key: str) -> Sample:
    """Requests per second over some connections at once."""
    request = _request("POST", "/api/jobs", key, BODY)

    async def sample() -> float:
        started = time.perf_counter()
        done = 0

        async def one_connection() -> None:
            nonlocal done
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while time.perf_counter() < started + SECONDS:
                await _exchange(reader, writer, request, b"202")
                done += 1
            writer.close()

        await asyncio.gather(*(one_connection() for _ in range(CONNECTIONS)))
        return done / (time.perf_counter() - started)

    return sample


def _get(port: int, key: str, query: str) -> Sample:
    """Milliseconds per request, one after the other: the median."""
    request = _request("GET", f"/api/jobs?{query}", key)

    async def sample() -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        taken = []
        for _ in range(LISTS):
            started = time.perf_counter()
            await _exchange(reader, writer, request, b"200")
            taken.append((time.perf_counter() - started) * 1000)
        writer.close()
        return median(taken)

    return sample
