"""What reading and forgetting logs and events costs must not depend on how many others there are."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib.resources import files
from typing import TYPE_CHECKING

import psycopg
import pytest

from holdfast.store.postgres.tenants import STATEMENTS as POSTGRES
from holdfast.store.sqlite import logs as sqlite_logs
from holdfast.store.sqlite.connection import open_connection
from holdfast.store.sqlite.session import STATEMENTS as SQLITE
from tests.conformance.test_plan import PLAN_MODES

if TYPE_CHECKING:
    from tests.support.postgres import Databases

PARAMETERS = [
    ("uuid", "gen_random_uuid()"),
    ("bigint", "1"),
    ("bigint", "9"),
    ("text[]", "'{info}'"),
    ("text", "'x'"),
    ("integer", "100"),
    ("uuid[]", "'{}'"),
    ("bigint[]", "'{}'"),
]
VARIABLES = {
    "p_run_ids": "$7",
    "p_run_id": "$1",
    "p_after": "$2",
    "v_before": "$3",
    "p_levels": "$4",
    "p_step": "$5",
    "v_search": "$5",
    "p_limit": "$6",
}
FILL = """
INSERT INTO holdfast.logs (run_id, no, job_id, level, message, created_at)
SELECT md5(CASE WHEN n % 2 = 0 THEN 'long' ELSE (n / 100)::text END)::uuid, n, gen_random_uuid(), 'info', 'hello',
       now() - n * interval '1 minute'
  FROM generate_series(1, 40000) AS n;
INSERT INTO holdfast.events (job_id, tenant, type, at)
SELECT md5((n / 3)::text)::uuid, CASE WHEN n % 5 > 0 THEN 'tenant-' || n % 300 END, 'job.failed',
       now() - n * interval '1 minute'
  FROM generate_series(1, 20000) AS n;
INSERT INTO holdfast.jobs (id, run_id, queue, task, state, run_at, max_attempts, lease_seconds, created_at, updated_at,
                           finished_at, args)
SELECT gen_random_uuid(), gen_random_uuid(), 'q', 't', 'completed', now(), 3, 300, now(), now(), now(), '{}'
  FROM generate_series(1, 20000);
VACUUM ANALYZE
"""


@pytest.fixture(scope="module")
def filled(postgres_databases: Databases) -> Iterator[str]:
    url = postgres_databases.create()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in FILL.split(";\n"):
            connection.execute(statement.encode())
    yield url
    postgres_databases.drop(url)


@pytest.fixture
def postgres(filled: str) -> Iterator[psycopg.Connection]:
    """One run with 20,000 lines among 400 short ones: what the statistics say of a run on average is far from it."""
    with psycopg.connect(filled, autocommit=True) as connection:
        yield connection


def plan_of(connection: psycopg.Connection, sql: str, mode: str, *values: str, types: Sequence[str] = ()) -> str:
    connection.execute(f"SET plan_cache_mode = {mode}".encode())
    named = f"({', '.join(types)})" if types else ""
    connection.execute(f"PREPARE asked {named} AS {sql}".encode())
    rows = connection.execute(f"EXPLAIN (COSTS OFF) EXECUTE asked ({', '.join(values)})".encode())
    plan = "\n".join(row[0] for row in rows)
    connection.execute("DEALLOCATE asked")
    return plan


def part_of(function: str, begin: str, end: str) -> str:
    """A statement inside one of our functions, its variables made parameters."""
    source = files("holdfast.store.postgres").joinpath("functions.sql").read_text(encoding="utf-8")
    body = source.split(f"FUNCTION holdfast.{function}(")[1].split("$$;")[0]
    (found,) = re.findall(f"{re.escape(begin)}.*?{re.escape(end)}", body, re.DOTALL)
    names = {**VARIABLES, "p_after": "$8"} if function == "log_read_new_v1" else VARIABLES
    return re.sub("|".join(names), lambda name: names[name.group()], found)


@pytest.mark.parametrize(
    ("end", "how"), [("ORDER BY l.no LIMIT p_limit", ""), ("ORDER BY l.no DESC LIMIT p_limit", "Backward ")]
)
def test_postgresql_reads_a_log_along_its_key(postgres: psycopg.Connection, end: str, how: str) -> None:
    """From the cursor on, in order, of that run alone: no sort of a long log for a page of it, whatever the filter."""
    begin = "ELSE\n        RETURN QUERY" if how == "" else "IF p_newest THEN\n        RETURN QUERY"
    sql = part_of("log_read_v1", begin, end).removeprefix(begin)
    plan = plan_of_pinned(postgres, sql)
    found = re.search(rf"Limit\n +->  Index Scan {how}using logs_pkey on logs l\n +Index Cond: (.*)", plan)
    assert found and all(part in found[1] for part in ("run_id = ", "no > ", "no < ")), plan
    assert "Sort" not in plan


def test_postgresql_reads_many_logs_along_their_key(postgres: psycopg.Connection) -> None:
    """What a process that follows many runs asks after each wake-up."""
    plan = plan_of_pinned(postgres, part_of("log_read_new_v1", "SELECT line.*", "line.no"))
    assert re.search(r"Limit\n +->  Index Scan using logs_pkey on logs l\n +Index Cond: .*run_id.*no > ", plan), plan


def plan_of_pinned(connection: psycopg.Connection, sql: str) -> str:
    """As inside our functions, which pin these settings."""
    for setting in ("enable_seqscan", "enable_bitmapscan"):
        connection.execute(f"SET {setting} = off".encode())
    types, values = zip(*PARAMETERS, strict=True)
    return plan_of(connection, sql, "force_generic_plan", *values, types=types)


@pytest.mark.parametrize("mode", PLAN_MODES)
@pytest.mark.parametrize(
    ("statement", "index", "values"),
    [
        ("event_list", "events_pkey", ("NULL", "50")),
        ("event_list_of_job", "events_job", ("gen_random_uuid()", "NULL", "NULL", "50")),
        ("event_list_of_tenant", "events_tenant", ("'tenant-1'", "NULL", "50")),
    ],
)
def test_postgresql_reads_events_along_an_index(
    postgres: psycopg.Connection, mode: str, statement: str, index: str, values: tuple[str, ...]
) -> None:
    """The newest of a job, of a tenant, or of all."""
    plan = plan_of(postgres, POSTGRES[statement], mode, *values)
    assert re.search(rf"Index Scan (Backward using|on) {index}\b", plan), plan
    assert "Seq Scan" not in plan


@pytest.mark.case("D34")
@pytest.mark.parametrize("mode", PLAN_MODES)
def test_postgresql_finds_old_lines_without_walking_over_the_table(postgres: psycopg.Connection, mode: str) -> None:
    """By their time, oldest first; those of jobs that go by their runs."""
    plan = plan_of(postgres, POSTGRES["log_prune"], mode, "now() - interval '90 days'", "1000")
    assert re.search(r"Limit\n +->  Index Scan using logs_created_at on logs", plan), plan
    ended = ("gen_random_uuid()", "now()", "now()", "1000")
    plan = plan_of(postgres, POSTGRES["log_prune_of_jobs"], mode, *ended)
    assert "Seq Scan on logs" not in plan and "Seq Scan on jobs" not in plan
    assert re.search(r"logs_pkey( on logs l)?\n +Index Cond: \(run_id = ", plan), plan


# -- SQLite ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sqlite(sqlite_url: str) -> Iterator[sqlite3.Connection]:
    """As our stores open it: with the function that a search needs."""
    with closing(open_connection(sqlite_url.removeprefix("sqlite:///"))) as connection:
        yield connection


def sqlite_plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    names = dict.fromkeys(re.findall(r":(\w+)", sql))
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", names)]


@pytest.mark.parametrize("sql", [SQLITE["log_read"], sqlite_logs.NEWEST, SQLITE["log_read_new"]])
def test_sqlite_reads_a_log_along_its_key(sqlite: sqlite3.Connection, sql: str) -> None:
    """From the cursor on, of that run alone, without a sort."""
    plan = sqlite_plan(sqlite, sql)
    assert plan[0].startswith("SEARCH holdfast_logs USING INDEX sqlite_autoindex_holdfast_logs_1 (run_id=? AND no>?")
    assert not [step for step in plan if "TEMP B-TREE" in step]


@pytest.mark.parametrize(
    ("statement", "how"),
    [
        ("event_list", "SEARCH holdfast_events USING INTEGER PRIMARY KEY (rowid<?)"),
        ("event_list_of_job", "SEARCH holdfast_events USING INDEX holdfast_events_job (job_id=? AND id<?)"),
        ("event_list_of_tenant", "SEARCH holdfast_events USING INDEX holdfast_events_tenant (tenant=? AND id<?)"),
    ],
)
def test_sqlite_reads_events_along_an_index(sqlite: sqlite3.Connection, statement: str, how: str) -> None:
    """Straight from its end, without a sort."""
    assert sqlite_plan(sqlite, SQLITE[statement]) == [how]


@pytest.mark.parametrize("statement", ["log_prune", "log_delete", "job_without_lines"])
def test_sqlite_finds_old_lines_without_walking_over_the_table(sqlite: sqlite3.Connection, statement: str) -> None:
    """The front of the table, or the lines of certain runs by their key."""
    walks = [step for step in sqlite_plan(sqlite, SQLITE[statement]) if re.match(r"SCAN (holdfast_logs|line)\b", step)]
    assert walks == (["SCAN holdfast_logs"] if statement == "log_prune" else [])  # which ends at its limit
