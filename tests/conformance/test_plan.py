"""What a claim costs must not depend on the backlog: the databases say how they would find its rows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files

import psycopg
import pytest

from holdfast.store.sqlite.session import STATEMENTS

PLAN_MODES = ("force_custom_plan", "force_generic_plan")
MIXED = """
INSERT INTO holdfast.jobs (id, run_id, queue, task, state, hold, tenant, priority, run_at, max_attempts, lease_seconds,
                           created_at, updated_at, args, order_key)
SELECT gen_random_uuid(), gen_random_uuid(), 'queue-' || n % 5, 'task-' || n % 3,
       (ARRAY['queued', 'queued', 'queued', 'running', 'failed', 'cancelled', 'completed'])[least(n % 10, 6) + 1],
       CASE n % 10 WHEN 1 THEN 'time' WHEN 2 THEN 'order' END,
       'tenant-' || n % 100, n % 4, now() + n * interval '1 second', 3, 300, now(), now(), '{}',
       CASE WHEN n % 10 = 2 THEN 'key-' || n % 50 END
  FROM generate_series(1, 50000) AS n
"""


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[psycopg.Connection]:
    """With 50,000 jobs in all states, and statistics that know them."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(MIXED.encode())
        connection.execute("ANALYZE holdfast.jobs")
        yield connection


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[sqlite3.Connection]:
    """The same on a file."""
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    states = ["queued", "queued", "queued", "running", "failed", "cancelled", *["completed"] * 4]
    holds = {1: "time", 2: "order"}
    connection.executemany(
        "INSERT INTO holdfast_jobs (id, run_id, queue, task, state, hold, priority, run_at, max_attempts, lease_seconds,"
        " created_at, updated_at, args) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?1, 3, 300, 0, 0, '{}')",
        ((n, f"queue-{n % 5}", f"task-{n % 3}", states[n % 10], holds.get(n % 10), n % 4) for n in range(1, 50_001)),
    )
    connection.execute("ANALYZE")
    connection.commit()
    yield connection
    connection.close()


def part_of_claim(begin: str, end: str) -> str:
    """A statement inside the claim's function, its variables made parameters."""
    source = files("holdfast.store.postgres").joinpath("functions.sql").read_text(encoding="utf-8")
    body = source[source.index("FUNCTION holdfast.job_claim_v1") : source.index("FUNCTION holdfast.job_complete_v1")]
    (found,) = re.findall(f"({re.escape(begin)}.*?{re.escape(end)})", body, re.DOTALL)
    numbered = {"v_queue": "$1", "p_tasks": "$2", "v_left": "$3", "v_now": "$4"}
    return re.sub("|".join(numbered), lambda name: numbered[name.group()], found)


def plan_of(connection: psycopg.Connection, sql: str, mode: str) -> str:
    connection.execute(f"SET plan_cache_mode = {mode}".encode())
    connection.execute(f"PREPARE part (text, text[], integer, timestamptz) AS {sql}".encode())
    rows = connection.execute("EXPLAIN (COSTS OFF) EXECUTE part ('queue-1', '{task-1,task-2}', 100, now())")
    plan = "\n".join(row[0] for row in rows)
    connection.execute("DEALLOCATE part")
    return plan


def test_postgresql_claims_straight_from_the_index(postgres: psycopg.Connection) -> None:
    """No sort and no scan of the table, also when the plan does not know the values."""
    sql = part_of_claim("SELECT j.ctid AS row, j.id, j.order_key", "FOR UPDATE SKIP LOCKED")
    for mode in PLAN_MODES:
        plan = plan_of(postgres, sql, mode)
        assert "Index Scan using jobs_claimable" in plan
        assert "Sort" not in plan
        assert "Seq Scan" not in plan


def test_postgresql_finds_what_fell_due_by_its_index(postgres: psycopg.Connection) -> None:
    """Each claim looks for due jobs first; that must cost next to nothing too."""
    sql = part_of_claim("UPDATE holdfast.jobs SET hold = NULL", "FOR UPDATE SKIP LOCKED))")
    for mode in PLAN_MODES:
        plan = plan_of(postgres, sql, mode)
        assert "Index Scan using jobs_scheduled" in plan
        assert "Tid Scan on jobs" in plan
        assert "Sort" not in plan
        assert "Seq Scan" not in plan


def sqlite_plan(connection: sqlite3.Connection, statement: str, **values: object) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[statement]}", values)]


def test_sqlite_claims_straight_from_the_index(sqlite: sqlite3.Connection) -> None:
    """The candidates come in index order, with no temporary table to sort them."""
    plan = sqlite_plan(sqlite, "job_candidates", queue="queue-1", tasks='["task-1"]', limit=100)
    assert [step for step in plan if "USING INDEX holdfast_jobs_claimable (queue=?)" in step]
    assert not [step for step in plan if "TEMP B-TREE" in step]
    assert not [step for step in plan if (step.startswith("SCAN") and "holdfast_jobs" in step) or step == "SCAN job"]


def test_sqlite_finds_what_fell_due_by_its_index(sqlite: sqlite3.Connection) -> None:
    """Each claim looks for due jobs first; that must cost next to nothing too."""
    plan = sqlite_plan(sqlite, "job_lift_due", now=0.0, limit=1000)
    assert [step for step in plan if "holdfast_jobs_scheduled (run_at<?)" in step]
    assert not [step for step in plan if "TEMP B-TREE" in step or step.startswith("SCAN holdfast_jobs")]


def test_sqlite_idle_workers_do_not_walk_through_history(sqlite: sqlite3.Connection) -> None:
    """What an idle worker asks again and again is answered from two small indexes."""
    plan = sqlite_plan(sqlite, "job_claimable_exists", queues='["queue-1"]', tasks='["task-1"]')
    assert [step for step in plan if "holdfast_jobs_claimable" in step]
    assert [step for step in plan if "holdfast_jobs_scheduled" in step]
    assert not [step for step in plan if re.match(r"SCAN holdfast_jobs(?! USING)", step)]
