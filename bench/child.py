"""The other end of processes.py: says that it is ready, waits for a line, does its part, answers with one line of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import sys
import threading
import time
from collections import Counter
from typing import Any

import uvloop

from bench.app import make_app, started_after
from bench.floor import Floor, PostgresFloor, SqliteFloor
from bench.places import path_of

statements: Counter[str] = Counter()


async def drain(url: str, concurrency: str) -> dict[str, Any]:
    app = make_app(url)
    await app.store.schema_version()  # connects: a start is measured elsewhere
    _wait_for_go()
    before = _cpu()
    end = await app.run_worker(concurrency=int(concurrency), exit_when_idle=0.0)
    answer = {"ended": time.monotonic(), "cpu": _cpu() - before, "jobs": end.jobs}
    await app.aclose()
    return answer


async def drain_floor(url: str) -> dict[str, Any]:
    floor: Floor
    floor = SqliteFloor(path_of(url)) if url.startswith("sqlite:") else PostgresFloor(url)
    await floor.open()
    _wait_for_go()
    before = _cpu()
    done = await floor.drain()
    answer = {"ended": time.monotonic(), "cpu": _cpu() - before, "jobs": done}
    await floor.close()
    return answer


async def work_until_told(url: str) -> dict[str, Any]:
    """An ordinary worker; answers how late its stamped jobs started and what it asked of SQLite between two marks."""
    if url.startswith("sqlite:"):
        _count_statements()
    app = make_app(url)
    await app.store.schema_version()
    worker = app.worker()
    _wait_for_go()
    marks: list[Counter[str]] = []
    threading.Thread(target=_follow, args=(asyncio.get_running_loop(), worker, marks), daemon=True).start()
    await worker.run()
    await app.aclose()
    return {"started_after": started_after, "marks": marks}


def _follow(loop: asyncio.AbstractEventLoop, worker: Any, marks: list[Counter[str]]) -> None:
    for line in sys.stdin:
        if line.strip() == "mark":
            marks.append(statements.copy())
    loop.call_soon_threadsafe(worker.stop)


def _count_statements() -> None:
    connect = sqlite3.connect

    def connect_and_count(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **kwargs)
        connection.set_trace_callback(lambda sql: statements.update([" ".join(sql.split()[:2])]))
        return connection

    sqlite3.connect = connect_and_count  # type: ignore[assignment]


def _wait_for_go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def serve(url: str, port: str) -> dict[str, Any]:
    from bench import served  # late: the others do not pay for the web

    return await served.serve(url, port)


async def serve_floor(url: str, port: str) -> dict[str, Any]:
    from bench import served

    return await served.serve_floor(url, port)


PARTS: dict[str, Any] = {
    "drain": drain,
    "drain-floor": drain_floor,
    "work": work_until_told,
    "serve": serve,
    "serve-floor": serve_floor,
}

if __name__ == "__main__":
    print(json.dumps(uvloop.run(PARTS[sys.argv[1]](*sys.argv[2:]))), flush=True)
