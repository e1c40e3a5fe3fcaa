"""What a claim costs must not depend on the backlog: the databases say how they would find its rows."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.store.shared import POSTGRES, SQLITE
from holdfast.store.sqlite.session import STATEMENTS

if TYPE_CHECKING:
    from tests.support.postgres import Databases

PLAN_MODES = ("force_custom_plan", "force_generic_plan")
MIXED = """
INSERT INTO holdfast.jobs (id, run_id, queue, task, state, hold, tenant, priority, run_at, max_attempts, lease_seconds,
                           created_at, updated_at, args, order_key)
SELECT gen_random_uuid(), gen_random_uuid(), 'queue-' || n % 3, 'task-' || n % 13 % 3,
       (ARRAY['queued', 'queued', 'queued', 'running', 'failed', 'cancelled', 'completed'])[least(n % 10, 6) + 1],
       CASE n % 10 WHEN 1 THEN 'time' WHEN 2 THEN 'order' END,
       CASE WHEN n % 7 > 0 THEN 'tenant-' || n % 3001 END, n % 4, now() + n * interval '1 second', 3, 300, now(), now(), '{}',
       CASE WHEN n % 10 = 2 THEN 'key-' || n % 50 END
  FROM generate_series(1, 50000) AS n
"""

PARAMETERS = {
    "text": "'queue-1'",
    "text[]": "'{task-1,task-2}'",
    "integer": "100",
    "timestamptz": "now()",
    "integer[]": "'{10,10}'",
    "uuid[]": "ARRAY[gen_random_uuid()]",
    "boolean": "true",
}
HOT = (
    "job_claim_v3 lease_extend_v2 job_complete_v1 job_complete_v2 job_leave_v1 "
    "job_leave_v2 job_reap_v2 log_append_v2 log_read_v1 log_read_new_v1"
)
VARIABLES = {
    "$1": "v_queue|p_queue|p_after|v_first",
    "$2": "p_tasks|p_lanes|v_lanes|p_results|v_dead",
    "$3": "v_queue.max_running|p_most|v_room|v_share|v_begin.urgency|v_begin.seq|p_limit|p_grace",
    "$4": "v_now|p_now|v_begin.run_at|v_up",
    "$5": "v_limits|v_open.rooms|v_open.weights|p_leases",
    "$6": "p_ids|p_run_ids",
    "$7": "v_floored",
}
"""What takes the place of our functions' variables, of the type that stands at that place above."""


def tenant_of(n: int) -> str | None:
    return f"tenant-{n % 3001}" if n % 7 else None


@pytest.fixture(scope="module")
def mixed_postgres(postgres_databases: Databases) -> Iterator[str]:
    url = postgres_databases.create()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(MIXED.encode())
        connection.execute("ANALYZE holdfast.jobs")
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def postgres(postgres_databases: Databases, mixed_postgres: str) -> Iterator[psycopg.Connection]:
    """With 50,000 jobs in all states, and statistics that know them."""
    url = postgres_databases.copy(mixed_postgres)
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection
    postgres_databases.drop(url)


@pytest.fixture(scope="module")
def mixed_sqlite(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mixed") / "holdfast.db"
    shutil.copyfile(sqlite_template, path)
    connection = sqlite3.connect(path)
    states = ["queued", "queued", "queued", "running", "failed", "cancelled", *["completed"] * 4]
    holds = {1: "time", 2: "order"}
    connection.executemany(
        "INSERT INTO holdfast_jobs (id, run_id, queue, task, state, hold, tenant, priority, run_at, max_attempts,"
        " lease_seconds, created_at, updated_at, args) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 3, 300, 0, 0, '{}')",
        (
            (n, n, f"queue-{n % 3}", f"task-{n % 13 % 3}", states[n % 10], holds.get(n % 10), tenant_of(n), n % 4, n)
            for n in range(1, 50_001)
        ),
    )
    connection.execute("ANALYZE")
    connection.commit()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a copy of the file alone must be the whole database
    connection.close()
    return path


@pytest.fixture
def sqlite(mixed_sqlite: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The same on a file."""
    with closing(sqlite3.connect(shutil.copyfile(mixed_sqlite, tmp_path / "holdfast.db"))) as connection:
        yield connection


def part_of(function: str, begin: str, end: str) -> str:
    """A statement inside one of our functions, its variables made parameters."""
    source = files("holdfast.store.postgres").joinpath("functions.sql").read_text(encoding="utf-8")
    body = source.split(f"FUNCTION holdfast.{function}(")[1].split("\nEND $$;")[0]
    (found,) = re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", body, re.DOTALL)
    found = re.sub(r"\bINTO \w+(, \w+)*", "", found)  # belongs to the function's language, not to the statement
    numbers = {name: number for number, names in VARIABLES.items() for name in names.split("|")}
    longest_first = sorted(numbers, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda name: numbers[name.group()], found)


def plan_of(connection: psycopg.Connection, sql: str, mode: str = "force_generic_plan", *, run: bool = False) -> str:
    """With the settings that our functions pin. Some parts of a plan are told only once it was run."""
    for setting in (f"plan_cache_mode = {mode}", "enable_seqscan = off", "enable_bitmapscan = off", "jit = off"):
        connection.execute(f"SET {setting}".encode())
    connection.execute(f"PREPARE part ({', '.join(PARAMETERS)}) AS {sql}".encode())
    options = "COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF, BUFFERS OFF" if run else "COSTS OFF"
    rows = connection.execute(f"EXPLAIN ({options}) EXECUTE part ({', '.join(PARAMETERS.values())})".encode())
    plan = "\n".join(row[0] for row in rows)
    connection.execute("DEALLOCATE part")
    return plan


@pytest.mark.parametrize("function", HOT.split())
def test_the_hot_functions_pin_their_plans(postgres: psycopg.Connection, function: str) -> None:
    """The plans shown below are those that are run, whatever the server's own settings are."""
    rows = postgres.execute("SELECT unnest(proconfig) FROM pg_proc WHERE proname = %s", [function])
    pinned = {"plan_cache_mode=force_generic_plan", "enable_seqscan=off", "enable_bitmapscan=off", "jit=off"}
    assert {row[0] for row in rows} == {*pinned, "search_path=pg_catalog, pg_temp"}


@pytest.mark.parametrize("mode", PLAN_MODES)
def test_postgresql_claims_straight_from_the_index(postgres: psycopg.Connection, mode: str) -> None:
    """For each tenant its front: no sort of jobs and no scan of the table, also when the plan does not know the values."""
    plan = plan_of(postgres, part_of("job_claim_v3", "SELECT array_agg(c.row)", "LIMIT v_room) AS c"), mode)
    found = re.search(r"Limit\n +->  LockRows\n +->  Index Scan using jobs_claimable on jobs k\n +Index Cond: (.*)", plan)
    assert found and "COALESCE(tenant, ''::text) = l.lane" in found[1] and "queue = " in found[1], plan
    assert "ROW((~ priority), run_at, seq) > ROW(" in found[1], plan
    assert "Sort" not in plan[found.start() :]
    assert "Seq Scan" not in plan


def test_postgresql_goes_from_tenant_to_tenant_by_single_probes(postgres: psycopg.Connection) -> None:
    """Each hop enters the index just after the tenant before; a backlog of any length costs the same."""
    plan = plan_of(postgres, part_of("lanes_after", "WITH RECURSIVE", "WHERE tenant IS NOT NULL"), run=True)
    probe = r"Limit .*\n +->  Index (Only )?Scan using jobs_claimable on jobs j (.*)\n +Index Cond: .*> hop"
    found = re.search(probe, plan)
    assert found and re.fullmatch(r"\(actual rows=1(\.00)? loops=99\)", found[2]), plan
    assert "Seq Scan on jobs" not in plan
    for begin, condition in (("IF p_after IS NULL THEN", "queue = $1"), ("ELSE", "> $1")):
        first = plan_of(postgres, part_of("lanes_after", f"{begin}\n        SELECT", "LIMIT 1").partition("\n")[2])
        assert re.search(r"Limit\n\s+->  Index (Only )?Scan using jobs_claimable", first), first
        assert condition in first
        assert "Sort" not in first


@pytest.mark.parametrize(
    ("function", "begin", "end"),
    [
        ("lanes_room", "SELECT array_agg(CASE WHEN l.most IS NULL", "(lane, most, no)"),
        ("queue_room", "SELECT count(*)", "AS running"),
    ],
)
def test_postgresql_counts_what_runs_by_its_index(postgres: psycopg.Connection, function: str, begin: str, end: str) -> None:
    """What a tenant or a queue runs is counted in the small index of running jobs, and no further than the limit."""
    plan = plan_of(postgres, part_of(function, begin, end))
    assert re.search(r"Limit\n\s+->  Index (Only )?Scan using jobs_running", plan), plan
    assert "Seq Scan on jobs" not in plan


@pytest.mark.parametrize("mode", PLAN_MODES)
def test_postgresql_finds_what_fell_due_by_its_index(postgres: psycopg.Connection, mode: str) -> None:
    """Each claim looks for due jobs first; that must cost next to nothing too."""
    plan = plan_of(postgres, part_of("job_claim_v3", "UPDATE holdfast.jobs SET hold = NULL", "FOR UPDATE SKIP LOCKED))"), mode)
    assert "Index Scan using jobs_scheduled" in plan
    assert "Tid Scan on jobs" in plan
    assert "Sort" not in plan
    assert "Seq Scan" not in plan


@pytest.mark.parametrize(
    ("function", "begin", "end"),
    [
        ("job_complete_v1", "UPDATE holdfast.jobs j", "AND j.state = 'running'"),
        ("job_complete_v2", "WITH held AS", "FROM done d"),
        ("lease_extend_v2", "WITH held AS", "skipped.run_id AND j.state = 'running'"),
    ],
)
def test_postgresql_completes_and_beats_without_comparing_each_with_each(
    postgres: psycopg.Connection, function: str, begin: str, end: str
) -> None:
    """Statistics of a moment when nothing ran make a walk through the running jobs look free; each row is found by its key."""
    postgres.execute("UPDATE holdfast.jobs SET state = 'completed' WHERE state = 'running'")
    postgres.execute("ANALYZE holdfast.jobs")
    plan = plan_of(postgres, part_of(function, begin, end))
    assert "Index Scan using jobs_pkey" in plan
    assert "jobs_running" not in plan
    assert "Seq Scan" not in plan


def test_postgresql_completes_a_thousand_jobs_in_a_moment(postgres: psycopg.Connection) -> None:
    """The same in numbers: comparing each with each would touch a million rows."""
    postgres.execute("UPDATE holdfast.jobs SET state = 'completed' WHERE state = 'running'")
    postgres.execute("ANALYZE holdfast.jobs")
    postgres.execute(
        "UPDATE holdfast.jobs SET state = 'running', locked_by = 'w', hold = NULL"
        " WHERE id IN (SELECT id FROM holdfast.jobs WHERE state = 'completed' LIMIT 1000)"
    )
    (ids, runs), *_ = postgres.execute("SELECT array_agg(id), array_agg(run_id) FROM holdfast.jobs WHERE state = 'running'")
    before = _rows_read(postgres)
    done = postgres.execute(
        "SELECT cardinality(holdfast.job_complete_v2(%s, %s, %s, NULL))", [ids, runs, ["null"] * len(ids)]
    ).fetchone()
    assert done == (1000,)
    assert _rows_read(postgres) - before < 20_000


@pytest.mark.parametrize("tenant", [None, "tenant-7"])
def test_postgresql_counts_a_queue_without_sorting_its_backlog(postgres: psycopg.Connection, tenant: str | None) -> None:
    """Statistics look at as many jobs of a queue as they count, not at all that wait."""
    postgres.execute("UPDATE holdfast.jobs SET tenant = 'tenant-7' WHERE queue = 'queue-1'")
    postgres.execute("VACUUM ANALYZE holdfast.jobs")
    before = _rows_read(postgres)
    postgres.execute("SELECT * FROM holdfast.queue_stats_v1(%s, 0, 100, NULL)", [tenant]).fetchall()
    assert _rows_read(postgres) - before < 5000  # some hundreds, and now and then what autovacuum reads; 50,000 wait


def _rows_read(connection: psycopg.Connection) -> int:
    connection.execute("SELECT pg_stat_force_next_flush()")
    row = connection.execute(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'holdfast' AND relname = 'jobs'"
    ).fetchone()
    assert row is not None
    return int(row[0])


def sqlite_plan(connection: sqlite3.Connection, statement: str, **values: object) -> list[str]:
    return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[statement]}", values)]


def test_sqlite_claims_straight_from_the_index(sqlite: sqlite3.Connection) -> None:
    """A tenant's candidates come in index order, with no temporary table to sort them."""
    plan = sqlite_plan(sqlite, "job_candidates", queue="queue-1", lane="tenant-1", tasks='["task-1"]', limit=100)
    assert [step for step in plan if "USING INDEX holdfast_jobs_claimable (queue=? AND <expr>=?)" in step]
    assert not [step for step in plan if "TEMP B-TREE" in step]
    assert not [step for step in plan if (step.startswith("SCAN") and "holdfast_jobs" in step) or step == "SCAN job"]


def test_sqlite_goes_from_tenant_to_tenant_by_single_probes(sqlite: sqlite3.Connection) -> None:
    """Each hop enters the index just after the tenant before; a backlog of any length costs the same."""
    plan = sqlite_plan(sqlite, "lanes_after", queue="queue-1", after="tenant-1", most=64)
    probes = [step for step in plan if "holdfast_jobs" in step]
    assert len(probes) == 2
    assert all(re.search(r"SEARCH .* INDEX holdfast_jobs_claimable \(queue=\? AND <expr>>\?\)", step) for step in probes), plan
    assert not [step for step in plan if "TEMP B-TREE" in step]


def test_sqlite_hops_over_a_backlog_without_walking_through_it(sqlite: sqlite3.Connection) -> None:
    """In numbers, which a plan does not show: the next tenant after a long backlog takes a few steps, not thousands."""
    queue, tenant, backlog = sqlite.execute(
        "SELECT queue, coalesce(tenant, ''), count(*) FROM holdfast_jobs WHERE state = 'queued' AND hold IS NULL"
        " GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 1"
    ).fetchone()
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    sqlite.set_progress_handler(count, 1)
    sqlite.execute(STATEMENTS["lanes_after"], {"queue": queue, "after": tenant, "most": 1}).fetchall()
    sqlite.set_progress_handler(None, 1)
    assert backlog > 20
    assert steps < 200


def test_sqlite_counts_what_runs_by_its_index(sqlite: sqlite3.Connection) -> None:
    """What a tenant runs is counted in the small index of running jobs."""
    plan = sqlite_plan(sqlite, "lanes_room", lanes='["tenant-1"]')
    assert [step for step in plan if "holdfast_jobs_running (<expr>=?)" in step], plan
    (queue,) = [step for step in sqlite_plan(sqlite, "queue_get", queue="queue-1") if "holdfast_jobs" in step]
    assert "INDEX holdfast_jobs_running" in queue


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


def steps_of(connection: sqlite3.Connection, sql: str, **values: object) -> int:
    """What the statement costs, whatever the machine."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 1)
    connection.execute(sql, values).fetchall()
    connection.set_progress_handler(None, 1)
    return steps


def test_sqlite_looks_up_what_each_tenant_runs(sqlite: sqlite3.Connection) -> None:
    """A page of tenants does not read all that runs once for each of them."""
    sqlite.execute(
        "INSERT INTO holdfast_tenants (id, updated_at) SELECT DISTINCT tenant, 0 FROM holdfast_jobs WHERE tenant > ''"
    )
    plan = sqlite_plan(sqlite, "tenant_list", after=None, limit=50)
    assert [step for step in plan if re.search(r"SEARCH holdfast_jobs .* holdfast_jobs_running \(<expr>=\?\)", step)], plan
    assert steps_of(sqlite, STATEMENTS["tenant_list"], after=None, limit=50) < 10_000


@pytest.mark.parametrize("statement", ["job_counts", "job_counts_of"])
def test_sqlite_counts_states_by_indexes(sqlite: sqlite3.Connection, statement: str) -> None:
    """No part of it walks through the table."""
    plan = sqlite_plan(sqlite, statement, tenant="tenant-1", cap=10_000)
    assert not [step for step in plan if re.search(r"(SCAN|SEARCH) holdfast_jobs(?! USING (COVERING )?INDEX)", step)], plan


def test_sqlite_counts_what_one_tenant_runs_without_the_others(sqlite: sqlite3.Connection) -> None:
    """Those behind it in the index are not looked at."""
    sql = STATEMENTS["queue_stats_running"].replace("/* tenant */", "AND coalesce(tenant, '') = :tenant")
    assert steps_of(sqlite, sql, tenant="tenant-1", cap=10_000, look_at=10_000, now=0.0, grace=0.0) < 2_000


def _deliver(sql: str) -> str:
    return f"UPDATE {sql} SET task = 'holdfast:deliver', project = 'wh_1' WHERE tenant IS NOT NULL"


@pytest.mark.parametrize("name", ["delivery_list", "delivery_list_failed"])
def test_deliveries_are_read_page_by_page_on_sqlite(sqlite: sqlite3.Connection, name: str) -> None:
    """In the order of the index, from where the page begins."""
    sqlite.execute(_deliver("holdfast_jobs"))
    sqlite.execute("ANALYZE")
    values = {"1": "wh_1", "2": "~", "3": 50, "4": None}
    plan = [row[3] for row in sqlite.execute(f"EXPLAIN QUERY PLAN {SQLITE[name]}", values)]
    index = "holdfast_jobs_deliveries_failed" if name.endswith("failed") else "holdfast_jobs_deliveries"
    assert any(f"INDEX {index} (project=? AND id<?)" in step for step in plan), plan
    assert not [step for step in plan if "TEMP B-TREE" in step]


@pytest.mark.parametrize("name", ["delivery_list", "delivery_list_failed"])
def test_deliveries_are_read_page_by_page_on_postgresql(postgres: psycopg.Connection, name: str) -> None:
    """The same: nothing is sorted, and those that failed have an index of their own."""
    postgres.execute(_deliver("holdfast.jobs").encode())
    postgres.execute("VACUUM ANALYZE holdfast.jobs")
    types, values = "text, uuid, bigint", "'wh_1', 'ffffffff-ffff-ffff-ffff-ffffffffffff', 50"
    if name == "delivery_list":
        types, values = f"{types}, text", f"{values}, NULL"
    postgres.execute(f"PREPARE page ({types}) AS {POSTGRES[name]}".encode())
    plan = "\n".join(row[0] for row in postgres.execute(f"EXPLAIN (COSTS OFF) EXECUTE page ({values})".encode()))
    index = "jobs_deliveries_failed" if name.endswith("failed") else "jobs_deliveries"
    assert re.search(rf"Limit\n\s+->  Index Scan Backward using {index} on jobs", plan), plan
    assert "Sort" not in plan


@pytest.mark.parametrize("tenant", [None, "tenant-7"])
def test_postgresql_looks_at_no_more_unserved_and_running_rows_than_asked(
    postgres: psycopg.Connection, tenant: str | None
) -> None:
    """The quick look of a page reads some hundreds of entries, whatever waits."""
    postgres.execute("VACUUM ANALYZE holdfast.jobs")
    before = _rows_read(postgres)
    postgres.execute("SELECT * FROM holdfast.job_unserved_v1(0, 10, 400, NULL)").fetchall()
    postgres.execute("SELECT * FROM holdfast.queue_stats_v2(%s, 0, 100, 50, NULL)", [tenant]).fetchall()
    assert _rows_read(postgres) - before < 5000
