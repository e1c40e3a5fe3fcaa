"""More stores on the same database, and databases that nobody has migrated yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psycopg
import pytest

from holdfast.clock import DatabaseClock, ManualClock
from holdfast.store.protocol import Store
from tests.conftest import open_store

OpenAnother = Callable[[], Store]


@pytest.fixture
async def open_another(store_kind: str, database_url: str, clock: ManualClock) -> AsyncIterator[OpenAnother]:
    """Opens a further store on the same database, as another process would."""
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(open_store(store_kind, database_url, clock=clock))
        return opened[-1]

    yield open_one
    for another in opened:
        await another.close()


@pytest.fixture
async def real_time_store(store_kind: str, database_url: str) -> AsyncIterator[Store]:
    """A store on the database's own clock."""
    opened = open_store(store_kind, database_url, clock=DatabaseClock())
    yield opened
    await opened.close()


@pytest.fixture
def unmigrated_url(store_kind: str, database_url: str, tmp_path: Path) -> str:
    """A database, or the path of a file, without anything of ours in it."""
    if store_kind == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    return database_url


@pytest.fixture
async def open_unmigrated(store_kind: str, unmigrated_url: str) -> AsyncIterator[OpenAnother]:
    """Opens stores on a database that nobody has migrated yet."""
    opened: list[Store] = []

    def open_one() -> Store:
        opened.append(open_store(store_kind, unmigrated_url))
        return opened[-1]

    yield open_one
    for another in opened:
        await another.close()
