"""Jobs that are enqueued when a SQLAlchemy session commits, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from sqlalchemy import String, create_engine, func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from holdfast import Holdfast, Job
from holdfast.errors import InvalidArguments
from holdfast.integrations.sqlalchemy import enqueue_at_commit, holdfast_of


class Base(DeclarativeBase):
    """The team's tables."""


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str] = mapped_column(String(50))


def with_driver(url: str, sqlite: str, postgres: str) -> str:
    return url.replace("postgresql://", f"postgresql+{postgres}://").replace("sqlite://", f"sqlite+{sqlite}://")


@pytest.fixture
def engine(database_url: str) -> Iterator[Any]:
    engine = create_engine(with_driver(database_url, "pysqlite", "psycopg"))
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
async def app(engine: Any) -> AsyncIterator[Holdfast]:
    hf = holdfast_of(engine, poll_busy=600, poll_idle=600)

    @hf.task(name="ship")
    async def ship(order_id: int) -> int:
        return order_id

    yield hf
    await hf.aclose()


def ship(app: Holdfast, order: Order) -> Any:
    return lambda: app.task_named("ship").job(order.id)


async def test_jobs_are_made_at_the_commit_with_the_ids_of_its_rows(app: Holdfast, engine: Any) -> None:
    """The row has no id when the job is asked for; both are there after the commit, and again after the next one."""
    with Session(engine) as session:
        for expected in (1, 2):
            order = Order(item="tea")
            session.add(order)
            enqueue_at_commit(session, ship(app, order))
            assert len(await app.jobs()) == expected - 1
            session.commit()
            assert sorted(job.args["order_id"] for job in await app.jobs()) == list(range(1, expected + 1))


async def test_a_rollback_makes_no_jobs_also_one_to_a_savepoint(app: Holdfast, engine: Any) -> None:
    """What was asked for inside the part that is undone goes with it, and nothing else."""
    with Session(engine) as session:
        kept, undone = Order(item="kept"), Order(item="undone")
        session.add(kept)
        enqueue_at_commit(session, ship(app, kept))
        nested = session.begin_nested()
        session.add(undone)
        enqueue_at_commit(session, ship(app, undone))
        nested.rollback()
        with session.begin_nested():
            enqueue_at_commit(session, ship(app, kept))
        assert await app.jobs() == []
        session.commit()
        kept_id = kept.id
        enqueue_at_commit(session, ship(app, kept))
        session.rollback()
        session.commit()
    assert [job.args["order_id"] for job in await app.jobs()] == [kept_id, kept_id]


async def test_a_job_that_is_refused_takes_the_commit_with_it(app: Holdfast, engine: Any) -> None:
    """Rows and jobs: both or neither."""
    with Session(engine) as session:
        session.add(Order(item="tea"))
        enqueue_at_commit(session, lambda: app.task_named("ship").job("no number"))
        with pytest.raises(InvalidArguments):
            session.commit()
        session.rollback()
        assert session.scalar(select(func.count()).select_from(Order)) == 0
    assert await app.jobs() == []


async def test_an_async_session_does_the_same_and_an_idle_worker_wakes(app: Holdfast, database_url: str) -> None:
    """The worker looks once in ten minutes by itself: it is the commit that wakes it."""
    engine = create_async_engine(with_driver(database_url, "aiosqlite", "asyncpg"))
    worker = app.worker(concurrency=1, reap=False)
    running = asyncio.create_task(worker.run())
    try:
        async with AsyncSession(engine) as session:
            order = Order(item="tea")
            session.add(order)
            made: list[Job[Any]] = []
            enqueue_at_commit(session, ship(app, order))
            await session.commit()
            made = await app.jobs()
        assert await app.wait_for_result(made[0].id, timeout=40) == 1
    finally:
        await worker.stop_and_wait()
        await running
        await engine.dispose()
