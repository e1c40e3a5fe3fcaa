"""The examples as they are, on a fresh database, against stand-ins for the services that they call."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest

from tests.support.processes import ROOT
from tests.support.stand_in import StandIn, stand_in
from tests.support.waiting import until

Load = Callable[..., ModuleType]


@pytest.fixture
async def service() -> AsyncIterator[StandIn]:
    """Somebody else's service."""
    async with stand_in() as found:
        yield found


@pytest.fixture
async def load(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Load]:
    """`load("payouts", BANK_URL=…)` runs examples/payouts/app.py anew with this environment."""
    loaded: list[Any] = []

    def run(name: str, **environment: str) -> ModuleType:
        for variable, value in {"HOLDFAST_DATABASE_URL": sqlite_url, **environment}.items():
            monkeypatch.setenv(variable, value)
        full = f"examples_under_test_{name}"
        spec = importlib.util.spec_from_file_location(full, ROOT / "examples" / name / "app.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, full, module)
        spec.loader.exec_module(module)
        loaded.append(module)
        return module

    yield run
    for module in loaded:
        await module.hf.aclose()


def quick(*tasks: Any) -> None:
    """Their attempts follow each other at once: tests have no minutes to spare."""
    for task in tasks:
        task.spec = msgspec.structs.replace(task.spec, backoff=(0.01,))


async def work_until(hf: Any, done: Callable[[], Awaitable[Any]], timeout: float = 100) -> None:
    """Workers come and go until it is done; what waits for its next attempt is met by the next of them."""

    async def worked() -> Any:
        await hf.run_worker(exit_when_idle=0.0, reap=False)
        return await done()

    await until(worked, timeout)


async def ended(hf: Any, job_id: str) -> bool:
    return bool((await hf.get(job_id)).state.ended)
