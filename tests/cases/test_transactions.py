"""Enqueue inside the caller's own transaction, with each library that people use: the job exists if and only if it commits."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiosqlite
import asyncpg
import django
import psycopg
import pytest
import sqlalchemy
from django.conf import settings as django_settings
from django.db import transaction as django_transaction
from django.db.utils import ConnectionHandler
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import Holdfast, State, current
from holdfast.errors import DuplicateJob, InvalidOption
from tests.cases.steps import drain, jobs_stored

Open = Callable[[str], AbstractAsyncContextManager[Any]]


class Rollback(Exception):
    """Ends a caller's transaction without committing it."""


def parts_of(url: str) -> dict[str, str]:
    return psycopg.conninfo.conninfo_to_dict(url)  # type: ignore[return-value]


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://").replace("sqlite://", f"sqlite+{driver}://")


# -- one open transaction per library: committed at the end, rolled back by an exception ---------------------------------


@contextlib.asynccontextmanager
async def of_psycopg(url: str) -> AsyncIterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextlib.asynccontextmanager
async def of_psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@contextlib.asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def of_sqlite3(url: str) -> AsyncIterator[Any]:
    connection = sqlite3.connect(path_of(url))
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def of_aiosqlite(url: str) -> AsyncIterator[Any]:
    async with aiosqlite.connect(path_of(url)) as connection:
        yield connection
        await connection.commit()


def of_sqlalchemy(driver: str, *, session: bool) -> Open:
    @contextlib.asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url, driver))
        try:
            with Session(engine) if session else engine.connect() as tx, tx.begin():
                yield tx
        finally:
            engine.dispose()

    return opened


def of_sqlalchemy_async(driver: str, *, session: bool) -> Open:
    @contextlib.asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        try:
            async with AsyncSession(engine) if session else engine.connect() as tx, tx.begin():
                yield tx
        finally:
            await engine.dispose()

    return opened


@contextlib.asynccontextmanager
async def of_django(url: str) -> AsyncIterator[Any]:
    if not django_settings.configured:
        django_settings.configure()
    django.setup()
    if url.startswith("sqlite"):
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path_of(url)}
    else:
        parts = parts_of(url)
        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts["dbname"],
            "USER": parts.get("user", ""),
            "HOST": parts["host"],
            "PORT": parts.get("port", ""),
            "PASSWORD": parts.get("password", ""),
        }
    connection = ConnectionHandler({"default": database})["default"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # a sync connection in an async test
        # What atomic() asks for the process-wide alias; these connections belong to the test.
        patch.setattr(django_transaction, "get_connection", lambda using=None: connection)
        try:
            with django_transaction.atomic():
                yield connection
        finally:
            connection.close()


@contextlib.asynccontextmanager
async def of_ours(url: str) -> AsyncIterator[Any]:
    hf = Holdfast(url)
    try:
        async with hf.transaction() as tx:
            yield tx
    finally:
        await hf.aclose()


POSTGRES: dict[str, Open] = {
    "psycopg": of_psycopg,
    "psycopg async": of_psycopg_async,
    "asyncpg": of_asyncpg,
    "SQLAlchemy Connection": of_sqlalchemy("psycopg", session=False),
    "SQLAlchemy Session": of_sqlalchemy("psycopg", session=True),
    "SQLAlchemy AsyncConnection on asyncpg": of_sqlalchemy_async("asyncpg", session=False),
    "SQLAlchemy AsyncSession on asyncpg": of_sqlalchemy_async("asyncpg", session=True),
    "SQLAlchemy AsyncSession on psycopg": of_sqlalchemy_async("psycopg", session=True),
    "Django": of_django,
    "hf.transaction": of_ours,
}
SQLITE: dict[str, Open] = {
    "sqlite3": of_sqlite3,
    "aiosqlite": of_aiosqlite,
    "SQLAlchemy Connection": of_sqlalchemy("pysqlite", session=False),
    "SQLAlchemy Session": of_sqlalchemy("pysqlite", session=True),
    "SQLAlchemy AsyncConnection": of_sqlalchemy_async("aiosqlite", session=False),
    "SQLAlchemy AsyncSession": of_sqlalchemy_async("aiosqlite", session=True),
    "Django": of_django,
    "hf.transaction": of_ours,
}
LIBRARIES = [*(("postgres", name) for name in POSTGRES), *(("sqlite", name) for name in SQLITE)]


Library = tuple[str, Callable[[], AbstractAsyncContextManager[Any]]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that takes a `library` runs with each of them, on the database it speaks to."""
    if "library" in metafunc.fixturenames:
        metafunc.parametrize(("store_kind", "library_name"), LIBRARIES)


@pytest.fixture
def library(database_url: str, store_kind: str, library_name: str) -> Library:
    """The URL of a fresh database, and how the library opens a transaction on it."""
    opened = (POSTGRES if store_kind == "postgres" else SQLITE)[library_name]
    return database_url, lambda: opened(database_url)


@pytest.fixture
async def shop(library: Library) -> AsyncIterator[Holdfast]:
    hf = Holdfast(library[0])
    yield hf
    await hf.aclose()


async def test_a_committed_transaction_leaves_a_job_that_runs(shop: Holdfast, library: Library) -> None:
    """Nobody sees it before the commit; afterwards it is a job like any other."""

    @shop.task
    async def send(to: str) -> str:
        return f"sent to {to}"

    async with library[1]() as tx:
        job = await send.options(tx=tx, tenant="acme", tags=["x"]).enqueue("ana")
        assert job.created and await jobs_stored(shop) == 0
    found = await shop.get(job.id)
    assert (found.state, found.tenant, found.tags, found.run_id) == (State.QUEUED, "acme", ["x"], job.run_id)
    await drain(shop)
    assert await job.result(timeout=0) == "sent to ana"


@pytest.mark.case("L23")
async def test_a_rolled_back_transaction_leaves_no_job(shop: Holdfast, library: Library) -> None:
    """Also not for a worker that was woken in between: there is nothing to run."""

    @shop.task
    async def send() -> None: ...

    with contextlib.suppress(Rollback):
        async with library[1]() as tx:
            await send.options(tx=tx).enqueue()
            raise Rollback
    assert await jobs_stored(shop) == 0
    assert (await drain(shop)).jobs == 0


async def test_many_jobs_go_in_by_one_transaction(shop: Holdfast, library: Library) -> None:
    """`enqueue_many(tx=)` is all or nothing like the transaction itself."""

    @shop.task
    async def send(n: int) -> int:
        return n

    async with library[1]() as tx:
        jobs = await shop.enqueue_many([send.job(n) for n in range(25)], tx=tx)
    await drain(shop)
    assert [await job.result(timeout=0) for job in jobs] == list(range(25))


async def test_a_unique_key_counts_inside_the_transaction(shop: Holdfast, library: Library) -> None:
    """A second enqueue with the key, in the same transaction or after it, finds the first job."""

    @shop.task
    async def send() -> None: ...

    async with library[1]() as tx:
        first = await send.options(tx=tx, unique="k").enqueue()
        second = await send.options(tx=tx, unique="k").enqueue()
    third = await send.options(unique="k").enqueue()
    assert (first.created, second.created, third.created) == (True, False, False)
    assert first.id == second.id == third.id and await jobs_stored(shop) == 1


async def test_a_refused_duplicate_leaves_the_transaction_usable(shop: Holdfast, library: Library) -> None:
    """`on_duplicate="raise"` names the active job; what else the transaction does is committed."""

    @shop.task
    async def send(n: int) -> None: ...

    active = await send.options(unique="k").enqueue(0)
    async with library[1]() as tx:
        with pytest.raises(DuplicateJob) as caught:
            await shop.enqueue_many([send.job(1), send.options(unique="k", on_duplicate="raise").job(2)], tx=tx)
        kept = await send.options(tx=tx).enqueue(3)
    assert caught.value.job_id == active.id
    assert {job.id for job in await shop.jobs()} == {active.id, kept.id}


async def test_a_connection_of_the_other_database_is_refused(shop: Holdfast, library: Library, tmp_path: Any) -> None:
    """Before a statement is sent that could not mean anything there."""

    @shop.task
    async def send() -> None: ...

    wrong = Holdfast(f"sqlite:///{tmp_path}/other.db" if shop.store.name == "postgres" else "postgresql://nobody@/nothing")
    wrong_send = wrong.task(name="send")(send.fn)
    async with library[1]() as tx:
        with pytest.raises(InvalidOption, match="but the jobs are stored in"):
            await wrong_send.options(tx=tx).enqueue()
    assert await jobs_stored(shop) == 0
    await wrong.aclose()


async def test_a_task_completes_its_job_in_a_transaction_of_this_library(shop: Holdfast, library: Library) -> None:
    """`current().complete(tx=)` takes whatever enqueue takes."""

    @shop.task
    async def book() -> str:
        async with library[1]() as tx:
            await current().complete("committed", tx=tx)
        return "returned"

    job = await book.enqueue()
    await drain(shop)
    assert await job.result(timeout=0) == "committed"


@pytest.mark.parametrize("kind", ["psycopg", "sqlite3"])
def test_a_sync_program_enqueues_in_its_own_transaction(kind: str, request: pytest.FixtureRequest) -> None:
    """No event loop, no other thread: the statement runs right there, on the caller's connection."""
    url = request.getfixturevalue("postgres_url" if kind == "psycopg" else "sqlite_url")
    hf = Holdfast(url)

    @hf.task
    def send(n: int) -> int:
        return n

    connection: Any = psycopg.connect(url) if kind == "psycopg" else sqlite3.connect(path_of(url))
    send.options(tx=connection).enqueue_sync(1)
    connection.rollback()
    job = send.options(tx=connection).enqueue_sync(2)
    with pytest.raises(DuplicateJob):
        bound = send.options(unique="k", on_duplicate="raise")
        hf.enqueue_many_sync([bound.job(3), bound.job(4)], tx=connection)
    connection.commit()
    connection.close()
    assert [found.id for found in hf.jobs_sync()] == [job.id]
    hf.run_worker_sync(exit_when_idle=0.0)
    assert job.result_sync(timeout=0) == 2
    hf.close()


async def test_a_sync_enqueue_refuses_an_async_connection(hf: Holdfast) -> None:
    """The sentence says what to await."""

    @hf.task
    async def send() -> None: ...

    async with hf.transaction() as tx:
        with pytest.raises(InvalidOption, match="await enqueue"):
            send.options(tx=tx).enqueue_sync()


async def test_an_idempotency_key_commits_with_the_callers_own_work(shop: Holdfast, library: Library) -> None:
    """Rolled back, it was never used; committed, the next request gets the answer."""

    @shop.task
    async def send() -> None: ...

    async def request(*, roll_back: bool = False) -> tuple[bool, Any]:
        async with library[1]() as tx:
            async with shop.idempotent("k", scope="orders", body={"n": 1}, tenant="acme", tx=tx) as once:
                if not once.replayed:
                    once.store({"job": (await send.options(tx=tx).enqueue()).id, "text": "50 % off: ’?’"})
            if roll_back:
                raise Rollback
        return once.replayed, once.response

    with contextlib.suppress(Rollback):
        await request(roll_back=True)
    assert await jobs_stored(shop) == 0
    first, second = await request(), await request()
    assert (first[0], second[0]) == (False, True)
    assert first[1] == second[1]
    assert await jobs_stored(shop) == 1


@pytest.mark.parametrize("kind", ["psycopg", "sqlite3"])
def test_a_sync_program_does_a_request_once_in_its_own_transaction(kind: str, request: pytest.FixtureRequest) -> None:
    """On its own connection and thread; an async one is refused."""
    url: str = request.getfixturevalue("postgres_url" if kind == "psycopg" else "sqlite_url")
    hf = Holdfast(url)
    connection: Any = psycopg.connect(url) if kind == "psycopg" else sqlite3.connect(path_of(url))
    replayed = []
    for end in (connection.rollback, connection.commit, connection.commit):
        with hf.idempotent("k", scope="s", tx=connection) as once:
            if not once.replayed:
                once.store("done")
        end()
        replayed.append(once.replayed)
    connection.close()
    hf.close()
    assert replayed == [False, False, True]
