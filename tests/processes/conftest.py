"""A scene for tests with real processes, on each kind of store, or on a PostgreSQL that may be stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.processes import audit
from tests.processes.scene import Scene, fresh_tasks
from tests.support.processes import Processes

if TYPE_CHECKING:
    from tests.support.postgres import OwnServer


@pytest.fixture
def short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that wait until a lease has run out: in this process, where jobs are enqueued, and in its children. It is eight
    beats long, so that nobody loses his lease because the machine is busy."""
    monkeypatch.setenv("HOLDFAST_DEFAULT_LEASE_SEC", "2")
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "0.25")


@pytest.fixture
def short_run_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of four hours: long enough to freeze a worker before its run is over, also on a busy machine."""
    monkeypatch.setenv("HOLDFAST_RUN_LIMIT_SEC", "3")
    monkeypatch.setenv("HOLDFAST_DEADLINE_GRACE_SEC", "3")


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


@pytest.fixture
async def stoppable_scene(
    own_postgres: OwnServer, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    """A scene on a server that the test may stop."""
    async for made in _scene(own_postgres.url, tmp_path, processes, monkeypatch, migrate=True):
        yield made


async def _scene(
    url: str, folder: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, *, migrate: bool = False
) -> AsyncIterator[Scene]:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
    monkeypatch.setenv("HOLDFAST_REAPER_INTERVAL_SEC", "0.25")
    scene = Scene(fresh_tasks(), url, folder, processes)
    if migrate:
        await scene.hf.migrate()
    await audit.install(scene.hf)
    yield scene
    processes.end_all()
    await scene.hf.aclose()
