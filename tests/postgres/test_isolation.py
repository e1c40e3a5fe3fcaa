"""A database whose transactions are REPEATABLE READ by default: ours are READ COMMITTED all the same, behind a pooler too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import asyncpg
import psycopg
import pytest

from holdfast import Holdfast, current
from holdfast.errors import InvalidOption
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.protocol import UNCHANGED
from tests.cases.steps import working
from tests.conformance.scene import QUEUE, TASK, claim, new_job
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import until


def by_hand(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
async def url(postgres_url: str) -> AsyncIterator[str]:
    """Of the database, through a pooler."""
    name = postgres_url.partition("?")[0].rpartition("/")[2]
    by_hand(postgres_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    bouncer = PgBouncer(postgres_url, server_connections=10)
    yield bouncer.url_of(postgres_url)
    bouncer.remove()


@pytest.mark.case("I29")
async def test_every_transaction_of_ours_is_read_committed(url: str) -> None:
    """One statement by itself, and one in a transaction of several."""
    store = PostgresStore(url)
    (row,) = await store._connections.fetch("SELECT current_setting('transaction_isolation')")
    assert (row[0], store.pooled) == ("read committed", True)
    async with store.transaction() as tx:
        assert await tx.fetch("SELECT current_setting('transaction_isolation') AS level") == [{"level": "read committed"}]
    await store.close()


@pytest.mark.case("I29")
async def test_limits_hold_whatever_the_database_has_as_its_default(url: str) -> None:
    """A claim counts what was committed before it had the tenant's lock, also in a transaction that began before."""
    store, other = PostgresStore(url), PostgresStore(url)
    await store.tenant_set("acme", plan=UNCHANGED, max_running=3, queue_depth=UNCHANGED, by=None)
    await store.job_insert_many([new_job(tenant="acme") for _ in range(10)])
    async with store.transaction() as tx:
        await tx.fetch("SELECT 1 FROM holdfast.jobs LIMIT 1")
        assert len((await claim(other, 10)).jobs) == 3
        late = await tx.fetch(
            "SELECT id FROM holdfast.job_claim_v3('late', NULL, $1, $2, 10, $3, 64, '{}', $4, NULL) WHERE id IS NOT NULL",
            [QUEUE],
            [TASK],
            [None],
            [None],
        )
    assert late == []
    for opened in (store, other):
        await opened.close()


@pytest.mark.case("I29")
async def test_nothing_that_is_spent_is_lost_whatever_the_database_has_as_its_default(url: str) -> None:
    """Forty runs add a cent each at the same time: the month has forty."""
    hf = Holdfast(url)

    async def spend_one() -> None:
        async with hf.transaction() as tx:
            await tx.shared("budget_add", "acme", "ai", "2026-11", datetime(2126, 12, 1, tzinfo=UTC), 1.0, 0.0, 0.0)

    await asyncio.gather(*(spend_one() for _ in range(40)))
    (month,) = await hf.store.shared("budget_month", "acme", "ai", "2026-11")
    assert month["spent"] == 40
    await hf.aclose()


async def test_migrations_that_run_at_once_see_each_other(url: str, postgres_url: str) -> None:
    """The second one has waited for the lock, and finds all done."""
    by_hand(postgres_url, "DROP SCHEMA holdfast CASCADE")
    stores = [PostgresStore(url) for _ in range(3)]
    done = await asyncio.gather(*(store.schema_migrate() for store in stores))
    assert sorted(map(bool, done)) == [False, False, True]
    for store in stores:
        await store.close()


async def test_an_ordered_job_is_not_completed_where_the_next_one_cannot_be_seen(postgres_url: str) -> None:
    """`complete(tx=)` in a REPEATABLE READ transaction says what to do; in a READ COMMITTED one the next job goes on."""
    hf = Holdfast(postgres_url)
    refused: list[str] = []
    ran: list[int] = []

    @hf.task
    async def work(n: int) -> None:
        ran.append(n)
        connection = await asyncpg.connect(postgres_url)
        try:
            with pytest.raises(InvalidOption, match="READ COMMITTED") as told:
                async with connection.transaction(isolation="repeatable_read"):
                    await current().complete(tx=connection)
            refused.append(str(told.value))
            async with connection.transaction():
                await current().complete(tx=connection)
        finally:
            await connection.close()

    async with working(hf):
        for n in range(3):
            await work.options(order="k").enqueue(n)
        await until(lambda: len(refused) == 3)
    assert ran == [0, 1, 2]
    await hf.aclose()
