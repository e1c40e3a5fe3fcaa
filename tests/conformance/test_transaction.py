"""Transactions: ours that a caller writes through, and the caller's own that a job joins."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast.errors import JobNotFound, StorageError
from holdfast.job import State
from holdfast.store.protocol import Completion, NewJob, Store
from holdfast.tx import caller_of
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import claimed_ids, insert, new_job, start, state_of
from tests.conftest import open_store
from tests.support.apart import run_apart


@pytest.fixture
async def notes(store: Store) -> Callable[[], Awaitable[list[str]]]:
    """A table of the user's own, and what is in it."""
    async with store.transaction() as tx:
        await tx.execute("CREATE TABLE notes (text TEXT NOT NULL UNIQUE)")

    async def read() -> list[str]:
        async with store.transaction() as tx:
            return [row["text"] for row in await tx.fetch("SELECT text FROM notes ORDER BY text")]

    return read


async def exists(store: Store, job: NewJob) -> bool:
    try:
        await store.job_get(job.id)
    except JobNotFound:
        return False
    return True


# -- ours ------------------------------------------------------------------------------------------------------------------


async def test_what_the_body_wrote_is_there_after_it(store: Store, notes: Callable[[], Awaitable[list[str]]]) -> None:
    """Committed at the end, all together; parameters are numbered and may be used twice."""
    async with store.transaction() as tx:
        await tx.execute("INSERT INTO notes VALUES ($1)", "a")
        found = await tx.fetch(
            "INSERT INTO notes SELECT CAST($2 AS text) || CAST($1 AS text) || CAST($2 AS text) RETURNING text", "b", "-"
        )
    assert found == [{"text": "-b-"}]
    assert await notes() == ["-b-", "a"]


async def test_a_body_that_raises_leaves_nothing(store: Store, notes: Callable[[], Awaitable[list[str]]]) -> None:
    """Its own error comes out as it is."""
    mistake = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as raised:
        async with store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES ('a')")
            raise mistake
    assert raised.value is mistake
    assert await notes() == []


async def test_a_refused_statement_is_our_error(store: Store, notes: Callable[[], Awaitable[list[str]]]) -> None:
    """Nobody need know the driver's exceptions; nothing of the transaction stays."""
    with pytest.raises(StorageError):
        async with store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES ('a')")
            await tx.execute("INSERT INTO notes VALUES ('a')")
    assert await notes() == []


async def test_a_refused_commit_is_our_error(postgres_url: str) -> None:
    """PostgreSQL only, where constraints may be checked at the very end."""
    store = open_store("postgres", postgres_url)
    async with store.transaction() as tx:
        await tx.execute("CREATE TABLE notes (text TEXT UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(StorageError, match="notes_text_key"):
        async with store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES ('a'), ('a')")
    await store.close()


async def test_others_see_nothing_before_the_commit(store: Store, open_another: OpenAnother) -> None:
    """A job of an open transaction is neither found nor counted by anybody else."""
    job, other = new_job(), open_another()
    statement = store.insert_statement([job])
    async with store.transaction() as tx:
        await caller_of(tx).run_async(statement)
        assert not await exists(other, job)
        assert (await other.job_counts())["queued"] == 0
    assert await exists(other, job)


async def test_a_cancelled_caller_leaves_nothing(store: Store, notes: Callable[[], Awaitable[list[str]]]) -> None:
    """A task that is cancelled inside its transaction rolls back, and the database is free again."""
    written = asyncio.Event()

    async def write_and_hang() -> None:
        async with store.transaction() as tx:
            await tx.execute("INSERT INTO notes VALUES ('a')")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(write_and_hang())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await notes() == []


# -- the caller's own ------------------------------------------------------------------------------------------------------


@contextmanager
def own_connection(url: str) -> Iterator[Any]:
    """A connection of the caller's own driver, closed at the end; what is not committed by then is gone."""
    connection: Any = sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.case("L23")
@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_exists_if_and_only_if_the_callers_transaction_commits(
    store: Store, database_url: str, commits: bool
) -> None:
    """The job table is the outbox."""
    job = new_job()
    with own_connection(database_url) as connection:
        rows = caller_of(connection).run(store.insert_statement([job]))
        (answer,) = store.inserted_from_rows([job], rows)
        assert (answer.id, answer.run_id, answer.state, answer.created) == (job.id, job.run_id, State.QUEUED, True)
        if commits:
            connection.commit()
    assert await exists(store, job) is commits
    assert ([job.id] if commits else []) == await claimed_ids(store)


async def test_the_callers_statement_meets_unique_keys_too(store: Store, database_url: str) -> None:
    """Older jobs and duplicates in the same call are answered as by any other insert."""
    older = await insert(store, unique_key="k", tenant="acme")
    jobs = [new_job(unique_key="k", tenant="acme"), new_job(), new_job(unique_key="n"), new_job(unique_key="n")]
    with own_connection(database_url) as connection:
        answers = store.inserted_from_rows(jobs, caller_of(connection).run(store.insert_statement(jobs)))
        connection.commit()
    assert [older.id, jobs[1].id, jobs[2].id, jobs[2].id] == [answer.id for answer in answers]
    assert [answer.created for answer in answers] == [False, True, True, False]


async def test_what_a_refused_call_inserted_can_be_taken_back(store: Store, database_url: str) -> None:
    """Inside the caller's transaction, which goes on and commits the rest."""
    jobs, kept = [new_job(), new_job()], new_job()
    with own_connection(database_url) as connection:
        caller = caller_of(connection)
        caller.run(store.insert_statement(jobs))
        caller.run(store.forget_statement([job.id for job in jobs]))
        caller.run(store.insert_statement([kept]))
        connection.commit()
    assert [await exists(store, job) for job in [*jobs, kept]] == [False, False, True]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_completion_counts_if_and_only_if_the_callers_transaction_commits(
    store: Store, database_url: str, commits: bool
) -> None:
    """The statement answers one row while the lease holds, and the job is completed by the commit."""
    run = await start(store)
    with own_connection(database_url) as connection:
        rows = caller_of(connection).run(store.complete_statement(Completion(run.id, run.run_id, '{"n": 1}')))
        assert len(rows) == 1
        if commits:
            connection.commit()
    found = await store.job_get(run.id)
    assert found.state is (State.COMPLETED if commits else State.RUNNING)
    assert found.output == ({"n": 1} if commits else None)


async def test_a_second_completion_by_statement_answers_nothing(store: Store, database_url: str) -> None:
    """The lease is spent."""
    run = await start(store)
    statement = store.complete_statement(Completion(run.id, run.run_id, None))
    with own_connection(database_url) as connection:
        caller = caller_of(connection)
        assert [len(caller.run(statement)) for _ in range(2)] == [1, 0]
        connection.commit()
    assert await state_of(store, run.id) is State.COMPLETED


# -- loops and closing -----------------------------------------------------------------------------------------------------


async def test_a_store_serves_loops_of_other_threads_that_come_and_go(store: Store) -> None:
    """A thread gives back what its loop holds; the others go on with theirs."""
    await insert(store)

    async def look_from_elsewhere() -> None:
        assert (await store.job_counts())["queued"] == 1
        await store.leave_loop()

    for _ in range(2):
        await asyncio.to_thread(run_apart, look_from_elsewhere())
    assert (await store.job_counts())["queued"] == 1


async def test_closing_one_store_leaves_the_others_alone(store: Store, open_another: OpenAnother) -> None:
    """What it wrote is there, it listens no more, and closing twice is harmless."""
    other = open_another()
    await other.listen(lambda _: None)
    job = await insert(other)
    await other.close()
    await other.close()
    assert not other.listening
    assert await state_of(store, job.id) is State.QUEUED


async def test_a_shared_statement_runs_on_the_callers_connection_as_on_ours(store: Store) -> None:
    """The same rows, the same clock, and inside the caller's transaction."""
    given = ("idempotency_reserve", "id", None, "fingerprint", "token", 30.0, 60)
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            assert await caller_of(tx).run_async(store.shared_statement(*given)) == [("id",)]
            raise ZeroDivisionError
    assert await store.shared(*given) == [{"id": "id"}]
    assert await store.shared(*given) == []
    async with store.transaction() as tx:
        assert await caller_of(tx).run_async(store.shared_statement(*given)) == []
        found = await caller_of(tx).run_async(store.shared_statement("idempotency_get", "id"))
    assert found == [("fingerprint", None)]
