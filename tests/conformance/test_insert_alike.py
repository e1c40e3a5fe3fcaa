"""PostgreSQL inserts many jobs that are alike by a statement of their own: nobody can tell by the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.clock import ManualClock
from holdfast.errors import StorageError
from holdfast.job import State
from holdfast.store.postgres import insert
from holdfast.store.protocol import CallerStatement, NewJob, Store
from holdfast.tx import caller_of
from tests.conformance.scene import claim, new_job

JOBS = 12
PLAIN: dict[str, Any] = {}
FULL: dict[str, Any] = {
    "queue": "reports",
    "task": "make_report",
    "max_attempts": 7,
    "lease_seconds": 12.5,
    "priority": -4,
    "project": "shop",
    "actor": "ana",
    "order_key": "o",
    "order_blocks": True,
    "timeout_seconds": 60.25,
    "expected_seconds": 30.5,
    "backoff": [1.0, 2.5],
    "noun": "Receipt",
    "tags": ["a", '"b", {c}'],
    "meta": {"k": [1, True, None, "'; --"]},
    "enqueued_by": "checkout",
    "trace_context": '{"traceparent": "00-1"}',
    "batch": "b1",
    "on_failed": msgspec.Raw(b'{"queue": "default", "task": "told", "argument": "failure"}'),
    "announced": -1,
}
HOSTILE = "'; DROP TABLE jobs; -- $1 %s ? :x {0} \\ \" \u2028 😀 שלום\n\t"


def alike(**fields: Any) -> list[NewJob]:
    args = [msgspec.Raw(msgspec.json.encode({"n": n, "text": HOSTILE, "none": None})) for n in range(JOBS)]
    return [new_job(args=args[n], tenant=(None, "", "acme", HOSTILE)[n % 4], **fields) for n in range(JOBS)]


def general_statement(jobs: list[NewJob], now: datetime) -> CallerStatement:
    """As it is for jobs of two kinds: one of another kind is put in front, and taken out of what was written."""
    statement = insert.statement_for([new_job(unique_key="other"), *jobs], now)
    rows = msgspec.json.decode(statement.parameter)
    return CallerStatement(statement.sql, msgspec.json.encode(rows[1:]).decode())


@pytest.fixture
async def rows_of(postgres_url: str) -> Callable[[CallerStatement], Awaitable[list[dict[str, Any]]]]:
    """Runs a statement in a transaction, reads the whole table and takes it all back."""

    async def run(statement: CallerStatement) -> list[dict[str, Any]]:
        connection: Any = await asyncpg.connect(postgres_url)
        try:
            await connection.execute("BEGIN")
            await caller_of(connection).run_async(statement)
            rows = await connection.fetch("SELECT * FROM holdfast.jobs ORDER BY seq")
            await connection.execute("ROLLBACK")
            return [{name: value for name, value in row.items() if name != "seq"} for row in rows]
        finally:
            await connection.close()

    return run


@pytest.mark.parametrize("fields", [PLAIN, FULL], ids=["plain", "full"])
async def test_rows_are_the_same_whichever_statement_wrote_them(
    rows_of: Callable[[CallerStatement], Awaitable[list[dict[str, Any]]]], fields: dict[str, Any]
) -> None:
    """Every column of every row, in the same order, down to the bytes of the JSON."""
    jobs, now = alike(**fields), datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    statement, general = insert.statement_for(jobs, now), general_statement(jobs, now)
    assert statement.sql != general.sql
    expected = await rows_of(general)
    assert [job.id for job in jobs] == [str(row["id"]) for row in expected]
    assert expected == await rows_of(statement)


def test_every_field_of_a_job_is_in_the_comparison() -> None:
    """A field that is new has to be given a value above, or be one that jobs which are alike do not have."""
    without = {"id", "run_id", "args", "tenant", "delay", "run_at", "unique_key"}
    assert {*NewJob.__struct_fields__} == {*FULL} | without


@pytest.mark.parametrize("field", [*FULL, "delay", "run_at", "unique_key"])
def test_one_job_that_differs_makes_a_batch_unlike(field: str) -> None:
    """In whatever field, also the last job of many."""
    values = {**FULL, "delay": 5.0, "run_at": datetime(2030, 1, 1, tzinfo=UTC), "unique_key": "k"}
    assert insert.are_alike(alike())
    assert not insert.are_alike([*alike(), new_job(**{field: values[field]})])


@pytest.mark.parametrize("fields", [{"delay": 5.0}, {"run_at": datetime(2030, 1, 1, tzinfo=UTC)}, {"unique_key": "k"}])
def test_jobs_for_later_and_jobs_with_a_key_go_the_general_way(fields: dict[str, Any]) -> None:
    """Whether such a job is held, or there at all, is decided row by row."""
    assert not insert.are_alike(alike(**fields))


def test_equal_is_not_alike_where_it_would_be_written_differently() -> None:
    """1 and True are equal to Python and not in JSON."""
    assert not insert.are_alike([*alike(meta={"k": 1}), *alike(meta={"k": True})])


def test_one_job_named_twice_is_not_alike() -> None:
    """It is inserted once, by the statement that can do that."""
    jobs = alike()
    assert not insert.are_alike([*jobs, jobs[0]])


# -- on both stores --------------------------------------------------------------------------------------------------------


async def test_each_of_many_alike_is_answered_for_itself(store: Store) -> None:
    """With its own ids, as created; and each is claimed with its own arguments."""
    jobs = alike(queue="mail", task="send_receipt", priority=3)
    answers = await store.job_insert_many(jobs)
    assert [(job.id, job.run_id) for job in jobs] == [(answer.id, answer.run_id) for answer in answers]
    assert {(a.state, a.created, a.queue, a.priority) for a in answers} == {(State.QUEUED, True, "mail", 3)}
    found = [await store.job_get(job.id) for job in jobs]
    assert [{"n": n, "text": HOSTILE, "none": None} for n in range(JOBS)] == [job.args for job in found]
    assert [job.tenant for job in jobs] == [job.tenant for job in found]


async def test_asking_again_for_many_alike_tells_how_they_are_by_now(store: Store) -> None:
    """The answer was lost, some of them run already, and none is made a second time."""
    jobs = [new_job() for _ in range(JOBS)]
    await store.job_insert_many(jobs)
    running = {job.id for job in (await claim(store, 3)).jobs}
    again = await store.job_insert_many(jobs)
    assert [job.id for job in jobs] == [answer.id for answer in again]
    assert running == {answer.id for answer in again if answer.state is State.RUNNING}
    assert len(running) == 3
    assert sum((await store.job_counts()).values()) == JOBS


async def test_asking_again_when_some_are_gone_makes_those(store: Store) -> None:
    """Half of them are known, the others are inserted, and all are answered."""
    jobs = [new_job() for _ in range(2 * JOBS)]
    await store.job_insert_many(jobs[:JOBS])
    again = await store.job_insert_many(jobs)
    assert [(job.id, job.run_id, True) for job in jobs] == [(answer.id, answer.run_id, answer.created) for answer in again]
    assert sum((await store.job_counts()).values()) == 2 * JOBS


async def test_a_refusal_of_many_alike_writes_none(store: Store) -> None:
    """What no row can hold is refused for all, as for one."""
    with pytest.raises(StorageError):
        await store.job_insert_many(alike(task=None))
    assert sum((await store.job_counts()).values()) == 0


async def test_many_alike_in_a_transaction_of_ours(store: Store, clock: ManualClock) -> None:
    """`hf.transaction()` reads rows by the names of their columns: these have some, all different."""
    jobs = alike()
    async with store.transaction() as tx:
        answers = store.inserted_from_rows(jobs, await caller_of(tx).run_async(store.insert_statement(jobs)))
    assert [(job.id, job.run_id, True) for job in jobs] == [(answer.id, answer.run_id, answer.created) for answer in answers]
    assert clock.now() == (await store.job_get(jobs[-1].id)).created_at


async def test_many_alike_get_the_databases_time(real_time_store: Store) -> None:
    """Without a clock of a test's own all of a call carry the moment of the statement."""
    jobs = [new_job() for _ in range(JOBS)]
    await real_time_store.job_insert_many(jobs)
    found = [await real_time_store.job_get(job.id) for job in jobs]
    assert {(job.created_at, job.run_at) for job in found} == {(found[0].created_at, found[0].created_at)}
