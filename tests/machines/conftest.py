"""One fixture for all providers, and one for each that talks to a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.providers import STAGES, Fly, Kubernetes, Stage, fly_stage, kubernetes_stage


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that forgets its fake reaches nobody: these tests talk to this host alone."""
    monkeypatch.setattr("holdfast.machines.fly.PUBLIC_API", "http://127.0.0.1:9/nobody")


@pytest.fixture(params=list(STAGES))
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    async with STAGES[request.param]() as made:
        yield made


@pytest.fixture
async def fly() -> AsyncIterator[Fly]:
    async with fly_stage() as made:
        yield made


@pytest.fixture
async def kubernetes() -> AsyncIterator[Kubernetes]:
    async with kubernetes_stage() as made:
        yield made
