"""A scene for tests with real processes, on each kind of store, or on a PostgreSQL that may be stopped."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.processes import audit
from tests.processes.scene import Scene
from tests.support.processes import Processes

if TYPE_CHECKING:
    from tests.support.postgres import OwnServer

TASKS = "tests.apps.killable"


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that wait until a lease has run out: in this process, where jobs are enqueued, and in its children."""
    monkeypatch.setenv("HOLDFAST_DEFAULT_LEASE_SEC", "1")
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "0.25")


@pytest.fixture
def short_run_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of four hours."""
    monkeypatch.setenv("HOLDFAST_RUN_LIMIT_SEC", "1.5")
    monkeypatch.setenv("HOLDFAST_DEADLINE_GRACE_SEC", "0.2")


@pytest.fixture
async def scene(
    database_url: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    async for made in _scene(database_url, tmp_path, processes, monkeypatch):
        yield made


@pytest.fixture
async def postgres_scene(
    postgres_url: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    async for made in _scene(postgres_url, tmp_path, processes, monkeypatch):
        yield made


@pytest.fixture(scope="module")
def stoppable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    """One durable PostgreSQL for all tests of a module that stop a server."""
    from tests.support.postgres import OwnServer

    server = OwnServer()
    try:
        yield server.start()
    finally:
        server.remove()


_numbers = itertools.count(1)


@pytest.fixture
async def stoppable_scene(
    stoppable: OwnServer, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    """A scene on a server that the test may stop; it has to run again at the end."""
    name = f"stoppable_{next(_numbers)}"
    with psycopg.connect(stoppable.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    async for made in _scene(stoppable.url_of(name), tmp_path, processes, monkeypatch, migrate=True):
        yield made


async def _scene(
    url: str, folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, *, migrate: bool = False
) -> AsyncIterator[Scene]:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
    monkeypatch.setenv("HOLDFAST_REAPER_INTERVAL_SEC", "0.25")
    sys.modules.pop(TASKS, None)
    tasks = importlib.import_module(TASKS)
    scene = Scene(tasks, url, folder, processes)
    if migrate:
        await scene.hf.migrate()
    await audit.install(scene.hf)
    yield scene
    processes.end_all()
    await scene.hf.aclose()
    sys.modules.pop(TASKS, None)
