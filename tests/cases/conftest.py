"""What the cases share: a worker beside the test, and task modules that another process can import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from types import ModuleType

import pytest

from holdfast.clock import ManualClock
from tests.cases.fleet import Fleet, make_fleet


@pytest.fixture
async def isolated(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModuleType]:
    """The tasks of tests/apps/isolated.py, on this test's database in this process and in its children."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    name = "tests.apps.isolated"
    sys.modules.pop(name, None)
    module = importlib.import_module(name)
    yield module
    await module.hf.aclose()
    sys.modules.pop(name, None)


@pytest.fixture
async def fleet(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    """Machines, for what is decided in Python."""
    async for made in make_fleet(sqlite_url, clock):
        yield made


@pytest.fixture
async def fleet_on_both(database_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    """The same for what statements decide, or several processes."""
    async for made in make_fleet(database_url, clock):
        yield made
