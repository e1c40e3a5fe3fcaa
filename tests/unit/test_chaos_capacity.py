"""What a campaign of chaos says about capacity: it notices what is taken, and only that."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, State
from tests.processes.audit import Moved
from tests.processes.verdict import Kept, _above_limits
from tests.support.waiting import until
from tools import chaos_capacity
from tools.chaos_capacity import LIMITS, leaked_in_postgres, leaked_in_sqlite, leaked_places, limit_tenants


def test_a_file_that_somebody_still_locks_is_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And none once he has let go."""
    monkeypatch.setattr(chaos_capacity, "LOCK_SECONDS", 0.0)
    path = str(tmp_path / "chaos.db")
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    assert leaked_in_sqlite(path) == ["the file is still locked: database is locked"]
    holder.close()
    assert leaked_in_sqlite(path) == []


async def test_what_a_connection_still_holds_is_a_leak(postgres_url: str) -> None:
    """The connection itself, and its lock; nothing once it is closed."""
    with psycopg.connect(postgres_url, autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(1)")
        assert leaked_in_postgres(postgres_url) == [
            f"1 times a {what} was left behind" for what in ("connection", "advisory lock")
        ]
    await until(lambda: leaked_in_postgres(postgres_url) == [])


async def test_a_place_that_is_still_taken_is_a_leak(hf: Holdfast) -> None:
    """By a run that nobody ended."""

    @hf.task
    async def work() -> None: ...

    await limit_tenants(hf)
    await work.options(tenant="small").enqueue()
    assert await leaked_places(hf) == []
    await hf.store.job_claim(
        worker="w", machine=None, queues=["default"], tasks=["work"], limit=1, cursors={}, hops=9, hints=["small"]
    )
    assert await leaked_places(hf) == ["1 places of small are taken"]


def test_one_run_above_a_limit_is_found() -> None:
    """By the order of the auditor's moves; as many as may run are right."""
    ids = [str(number) for number in range(LIMITS["small"] + 1)]
    jobs = {one: Kept(one, 1, "work", State.RUNNING, 1, None, None, False, 0, "small") for one in ids}
    moves = [Moved(one, one, State.QUEUED, State.RUNNING) for one in ids]
    assert _above_limits(jobs, moves[:-1], LIMITS) == []
    assert _above_limits(jobs, moves, LIMITS) == ["3 jobs of small ran at once, and 2 may"]
