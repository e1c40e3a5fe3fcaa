"""A worker inside a FastAPI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.errors import ConfigError, NotMigrated
from holdfast.integrations.fastapi import HoldfastDep, lifespan


@pytest.fixture
async def hf_here(tmp_path: Path) -> AsyncIterator[Holdfast]:
    """On a file that nobody has migrated."""
    hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db")

    @hf.task(name="double")
    async def double(n: int) -> int:
        return 2 * n

    yield hf
    await hf.aclose()


def app_with(hf: Holdfast, **options: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan(hf, **options))

    @app.post("/double/{n}")
    async def double(n: int, hf: HoldfastDep) -> int:
        job = await hf.enqueue("double", {"n": n})
        return int(await hf.wait_for_result(job.id, timeout=40))

    return app


async def call(app: FastAPI, n: int) -> Any:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        return (await client.post(f"/double/{n}")).json()


async def test_the_worker_lives_as_long_as_the_application(hf_here: Holdfast) -> None:
    """It migrates, works, ends with the application, and begins again with the next start; a lifespan inside it runs too."""
    seen: list[str] = []

    @asynccontextmanager
    async def inner(app: Any) -> AsyncIterator[dict[str, str]]:
        seen.append("begun")
        yield {"state": "inner"}
        seen.append("ended")

    app = app_with(hf_here, migrate=True, concurrency=2, inner=inner)
    for n in (4, 5):
        async with app.router.lifespan_context(app) as state:
            assert state == {"state": "inner"}
            assert await call(app, n) == 2 * n
            assert len(await hf_here.store.worker_list()) == 1
        assert await hf_here.store.worker_list() == []
    assert seen == ["begun", "ended"] * 2


async def test_an_application_on_a_database_that_is_not_migrated_does_not_start(hf_here: Holdfast) -> None:
    """Better than one that accepts requests and works on none."""
    app = app_with(hf_here)
    with pytest.raises(NotMigrated):
        async with app.router.lifespan_context(app):
            pytest.fail("it started")


async def test_without_a_worker_there_is_only_the_dependency(hf_here: Holdfast) -> None:
    """And without the lifespan, a sentence that says what is missing."""
    app = app_with(hf_here, migrate=True, worker=False)
    with pytest.raises(ConfigError, match="lifespan"):
        await call(app, 1)
    async with app.router.lifespan_context(app):
        assert await hf_here.store.worker_list() == []
