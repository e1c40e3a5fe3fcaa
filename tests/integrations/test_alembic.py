"""Holdfast's migrations inside Alembic's, with the drivers that people migrate with."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast import Holdfast
from holdfast.errors import ConfigError, NotMigrated
from holdfast.integrations import alembic as integration
from tests.support.postgres import Databases


@pytest.fixture
def empty_url(store_kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database in which Holdfast has never been."""
    if store_kind == "sqlite":
        yield f"sqlite:///{tmp_path}/empty.db"
        return
    databases: Databases = request.getfixturevalue("postgres_databases")
    url = databases.create()
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA holdfast CASCADE")
    engine.dispose()
    yield url
    databases.drop(url)


def with_driver(url: str, driver: dict[str, str]) -> str:
    kind = url.partition(":")[0]
    return url.replace(f"{kind}://", f"{kind}+{driver[kind]}://")


SYNC = {"sqlite": "pysqlite", "postgresql": "psycopg"}
ASYNC = {"sqlite": "aiosqlite", "postgresql": "asyncpg"}


def migrate(connection: Any, hf: Holdfast, *, fails: bool = False) -> None:
    """As env.py and a revision do it."""
    context = MigrationContext.configure(connection, opts={"transactional_ddl": True})
    with context.begin_transaction(), Operations.context(context) as op:
        op.create_table("orders", sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True))
        integration.upgrade(op, hf)
        if fails:
            raise RuntimeError("the revision failed")


@contextmanager
def holdfast_on(url: str) -> Iterator[Holdfast]:
    hf = Holdfast(url)
    try:
        yield hf
    finally:
        hf.close()


def test_our_migrations_are_part_of_theirs(empty_url: str) -> None:
    """All or nothing with the rest of the revision; run again, only what is new is done."""
    engine = sqlalchemy.create_engine(with_driver(empty_url, SYNC))
    with holdfast_on(empty_url) as hf:
        if empty_url.startswith("postgresql"):
            with engine.connect() as connection, pytest.raises(RuntimeError), connection.begin():
                migrate(connection, hf, fails=True)
            with pytest.raises(NotMigrated):
                hf.call_sync(hf.store.schema_version())
        with engine.begin() as connection:
            migrate(connection, hf)
        with engine.begin() as connection:
            context = MigrationContext.configure(connection)
            with Operations.context(context) as op:
                integration.upgrade(op, hf)
        assert hf.migrate_sync() == []

        @hf.task(name="ping")
        def ping() -> str:
            return "pong"

        job = hf.task_named("ping").enqueue_sync()
        hf.run_worker_sync(exit_when_idle=0.0)
        assert hf.wait_for_result_sync(job.id, timeout=40) == "pong"
    engine.dispose()


async def test_an_async_engine_runs_them_as_well(empty_url: str) -> None:
    """As env.py of Alembic's async template does, by run_sync."""
    hf = Holdfast(empty_url)
    engine = create_async_engine(with_driver(empty_url, ASYNC))
    try:
        async with engine.begin() as connection:
            await connection.run_sync(migrate, hf)
        assert await hf.store.schema_version() > 0
        assert await hf.migrate() == []
    finally:
        await engine.dispose()
        await hf.aclose()


def test_offline_they_are_written_out(sqlite_url: str) -> None:
    """`alembic upgrade --sql` gives what an empty database needs; a database of another kind is refused."""
    with holdfast_on(sqlite_url) as hf:
        out = io.StringIO()
        context = MigrationContext.configure(dialect_name="sqlite", opts={"as_sql": True, "output_buffer": out})
        with Operations.context(context) as op:
            integration.upgrade(op, hf)
        assert "CREATE TABLE holdfast_jobs" in out.getvalue()
        other = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": out})
        with Operations.context(other) as op, pytest.raises(ConfigError, match="stored in sqlite"):
            integration.upgrade(op, hf)


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_autogenerate_leaves_our_tables_alone(database_url: str) -> None:
    """Without the filter it would propose to drop them."""
    engine = sqlalchemy.create_engine(with_driver(database_url, SYNC))
    with engine.connect() as connection:
        for only, drops in (({"include_name": integration.include_name}, False), ({}, True)):
            context = MigrationContext.configure(connection, opts={"include_schemas": True, **only})
            assert bool(compare_metadata(context, sqlalchemy.MetaData())) is drops
    engine.dispose()
