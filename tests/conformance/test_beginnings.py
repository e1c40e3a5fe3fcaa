"""A claim on PostgreSQL that begins behind the last place where work was found: nothing is left out or walked over twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast.store.postgres.store import PostgresStore
from tests.conformance.scene import QUEUE, TASK, claim, claimed_ids, insert_some

SLOW = 1.0


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """SQLite has no such entries: its index holds what is there and nothing else."""
    opened = PostgresStore(postgres_url)
    yield opened
    await opened.close()


async def test_a_claim_that_begins_further_on_still_fills_up_from_the_front(store: PostgresStore) -> None:
    """What lies before its beginning is found by the same claim once there is nothing behind it."""
    jobs = await insert_some(store, 6)
    store._beginnings.learn(QUEUE, None, jobs[3], SLOW, 1)
    assert await claimed_ids(store, 10) == [*jobs[4:], *jobs[:4]]


async def test_a_claim_that_is_filled_says_where_the_next_one_may_begin(store: PostgresStore) -> None:
    """The next begins behind the last job taken, and takes those after it."""
    jobs = await insert_some(store, 6)
    store._beginnings.learn(QUEUE, None, jobs[0], SLOW, 1)
    assert await claimed_ids(store, 2) == jobs[1:3]
    assert await claimed_ids(store, 2) == jobs[3:5]
    assert store._beginnings.of([QUEUE]) == [jobs[4]]


async def test_a_beginning_that_is_no_longer_there_means_the_front(store: PostgresStore) -> None:
    """The job may have been pruned, or belong to another database."""
    jobs = await insert_some(store, 2)
    store._beginnings.learn(QUEUE, None, "00000000-0000-7000-8000-000000000000", SLOW, 1)
    assert await claimed_ids(store) == [jobs[0]]


async def test_jobs_claimed_under_an_open_transaction_are_not_walked_over_again(
    store: PostgresStore, postgres_url: str
) -> None:
    """Their entries stay in the index until that transaction ends; a claim that begins behind them touches few pages."""
    await insert_some(store, 4000)
    elsewhere, watching = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    try:
        await elsewhere.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await elsewhere.execute("SELECT count(*) FROM holdfast.workers")
        last = (await claim(store, limit=3900)).jobs[-1]
        behind, front = [await _entries_read(watching, place) for place in (last.id, None)]
    finally:
        await elsewhere.close()
        await watching.close()
    assert behind < 100
    assert front >= 3900


async def _entries_read(connection: asyncpg.Connection, behind: str | None) -> int:
    """How many index entries a claim of one job reads; it is undone."""
    count = "SELECT pg_stat_get_xact_tuples_returned('holdfast.jobs_claimable'::regclass)"
    asked = "SELECT * FROM holdfast.job_claim_v3('w', NULL, $1, $2, 1, '{NULL}', 64, '{}', $3, NULL)"
    transaction = connection.transaction()
    await transaction.start()
    before = await connection.fetchval(count)
    await connection.fetch(asked, [QUEUE], [TASK], [behind])
    after = await connection.fetchval(count)
    await transaction.rollback()
    return int(after - before)
