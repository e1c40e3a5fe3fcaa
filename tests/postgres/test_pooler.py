"""PgBouncer in transaction mode between everything and PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Holdfast, RetryLater, State, current
from holdfast.doctor import examine
from tests.cases.steps import ends, working
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import until


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[PgBouncer]:
    bouncer = PgBouncer(postgres_url)
    yield bouncer
    bouncer.remove()


@pytest.fixture
async def hf(pooler: PgBouncer, postgres_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(pooler.url_of(postgres_url), poll_busy=0.1, poll_idle=0.2)
    yield app
    await app.aclose()


@pytest.mark.case("I28")
async def test_jobs_live_their_whole_life_behind_a_transaction_pooler(hf: Holdfast) -> None:
    """Migrate, enqueue one and many, claim, log, retry and result, with many at once on few connections."""

    @hf.task(max_attempts=2, backoff=(0.0,))
    async def work(n: int) -> int:
        current().log.info("at work", n=n)
        if n % 10 == 0 and current().attempt == 1:
            raise RetryLater(0)
        return n

    assert await hf.migrate() == []
    jobs = await hf.enqueue_many([work.job(n) for n in range(100)])
    one_by_one = await asyncio.gather(*(work.options(tenant="acme").enqueue(n) for n in range(30)))
    await hf.tenants.set("acme", plan="pro")
    async with working(hf, concurrency=20), working(hf, concurrency=20):
        ended = await asyncio.gather(*(ends(hf, job) for job in [*jobs, *one_by_one]))
    assert {job.state for job in ended} == {State.COMPLETED}
    assert [line.message for line in await hf.logs((await hf.runs(jobs[1].id))[0].run_id)] == ["at work"]
    assert hf.store.pooled


@pytest.mark.case("I28")
async def test_wake_up_is_by_polling_where_notifications_do_not_pass(hf: Holdfast) -> None:
    """LISTEN succeeds behind a transaction pooler and nothing ever arrives: that is found out, and jobs start all the same."""

    @hf.task
    async def work() -> str:
        return "done"

    async with working(hf):
        assert await (await work.enqueue()).result(timeout=40) == "done"
        assert not hf.store.listening


@pytest.mark.case("I28")
async def test_an_address_past_the_pooler_brings_wake_ups_back(pooler: PgBouncer, postgres_url: str) -> None:
    """`listen_url` is for LISTEN alone; all else goes through the pooler."""
    app = Holdfast(pooler.url_of(postgres_url), listen_url=postgres_url)

    @app.task
    async def work() -> str:
        return "done"

    async with working(app):
        await until(lambda: app.store.listening)
        assert await (await work.enqueue()).result(timeout=40) == "done"
        assert app.store.pooled
    await app.aclose()


@pytest.mark.case("I28")
async def test_doctor_names_the_pooler_and_what_to_do(hf: Holdfast) -> None:
    """In one line each: that there is one, and that wake-ups do not pass it."""
    checks = {check.name: check for check in await examine(hf)}
    assert "behind a pooler" in checks["engine"].message
    assert checks["wake-ups"].status == "warning" and "HOLDFAST_LISTEN_URL" in checks["wake-ups"].advice


async def test_without_a_pooler_none_is_seen(postgres_url: str) -> None:
    """Statements are prepared once and sent alone, as ever."""
    app = Holdfast(postgres_url)
    await app.jobs()
    assert not app.store.pooled
    await app.aclose()
