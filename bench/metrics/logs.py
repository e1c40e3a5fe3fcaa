"""A task that says a lot, beside the same task with a file, and beside the bare insert of the same rows."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg

from bench.app import make_app
from bench.noise import alternate
from bench.places import Place, PostgresPlace, path_of
from bench.plan import Line, Plan
from bench.processes import run_together
from holdfast.ids import new_job_id
from holdfast.store.protocol import LogFilter

BATCH = 4000


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        lines += await _speed(place, plan)
    return lines


async def _speed(place: Place, plan: Plan) -> list[Line]:
    count = plan.log_lines
    with tempfile.TemporaryDirectory() as folder:
        ours = _one_task(place, count, "talk", lambda: {})
        file = _one_task(place, count, "talk_to_file", lambda: {"path": str(Path(folder) / str(time.monotonic_ns()))})
        floor, floor_name = (_copy, "COPY") if isinstance(place, PostgresPlace) else (_insert, "executemany")
        found, calibrations = await alternate(plan.runs, ours, file, lambda: floor(place, count))

    def line(title: str, name: str, values: list[float]) -> Line:
        return Line(
            metric="logs",
            store=place.name,
            title=title,
            unit="lines/s",
            ours=found[0],
            floors={name: values},
            calibrations=calibrations,
        )

    return [
        line(f"a task that logs {count:,} lines, until its end", "to a file", found[1]),
        line("the same lines beside the bare insert", floor_name, found[2]),
    ]


def _one_task(place: Place, count: int, task: str, more: Callable[[], dict[str, Any]]) -> Callable[[], Awaitable[float]]:
    async def sample() -> float:
        url = await place.fresh()
        app = make_app(url)
        job = await app.tasks[task].enqueue(lines=count, **more())
        await run_together(1, "drain", url, "1")
        done = await app.get(job.id)
        assert done.started_at is not None and done.finished_at is not None and done.state.value == "completed"
        if task == "talk":
            (last,) = await app.store.log_read(done.run_id, LogFilter(), limit=1, newest=True)
            assert last.no == count, last
        await app.aclose()
        return count / (done.finished_at - done.started_at).total_seconds()

    return sample


async def _copy(place: Place, count: int) -> float:
    connection: Any = await asyncpg.connect(await place.fresh())
    await connection.execute("CREATE TABLE floor (LIKE holdfast.logs INCLUDING ALL)")
    rows = [
        (row[0], row[1], row[0], None, None, None, "info", row[2], None, None, row[3]) for row in _rows(count, new_job_id())
    ]
    started = time.perf_counter()
    for start in range(0, count, BATCH):
        await connection.copy_records_to_table("floor", records=rows[start : start + BATCH], columns=_COLUMNS)
    taken = time.perf_counter() - started
    await connection.close()
    return count / taken


_COLUMNS = ("run_id", "no", "job_id", "tenant", "project", "step", "level", "message", "duration_ms", "metadata", "created_at")


def _rows(count: int, run_id: str) -> list[tuple[Any, ...]]:
    now = datetime.now(UTC)
    return [(run_id, number + 1, f"line {number} of what this task has to say", now) for number in range(count)]


async def _insert(place: Place, count: int) -> float:
    connection = sqlite3.connect(path_of(await place.fresh()), isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    rows = [(row[0], row[1], row[0], "info", row[2], row[3].timestamp()) for row in _rows(count, new_job_id())]
    started = time.perf_counter()
    for start in range(0, count, BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO holdfast_logs (run_id, no, job_id, level, message, created_at) VALUES (?, ?, ?, ?, ?, ?)",
            rows[start : start + BATCH],
        )
        connection.execute("COMMIT")
    taken = time.perf_counter() - started
    connection.close()
    return count / taken
