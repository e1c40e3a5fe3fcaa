"""A worker that lives as long as a FastAPI (or Starlette) application, and the application's Holdfast as a dependency."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import HTTPConnection

from holdfast import Holdfast
from holdfast.errors import ConfigError
from holdfast.processes.worker import Worker

log = logging.getLogger("holdfast")

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(
    hf: Holdfast, *, migrate: bool = False, worker: bool = True, inner: Lifespan | None = None, **options: Any
) -> Lifespan:
    """`FastAPI(lifespan=lifespan(hf))`. `options` are those of `hf.worker`, `inner` is a lifespan of one's own.

    The application does not start where the database is not migrated; `migrate=True` does that first. At its end, running
    jobs get their grace period. `worker=False`: only `HoldfastDep`, for where workers are processes of their own.
    """

    @asynccontextmanager
    async def context(app: Any) -> AsyncIterator[Any]:
        if migrate:
            await hf.migrate()
        await hf.store.schema_version()
        app.state.holdfast = hf
        async with _working(hf.worker(**options) if worker else None):
            if inner is None:
                yield None
            else:
                async with inner(app) as state:
                    yield state
        await hf.store.leave_loop()

    return context


@asynccontextmanager
async def _working(worker: Worker | None) -> AsyncIterator[None]:
    if worker is None:
        yield
        return
    running = asyncio.create_task(worker.run(), name="holdfast worker")
    running.add_done_callback(_say_if_failed)
    try:
        yield
    finally:
        await worker.stop_and_wait()
        await asyncio.gather(running, return_exceptions=True)


def _say_if_failed(running: asyncio.Task[Any]) -> None:
    if not running.cancelled() and running.exception() is not None:
        log.error("The worker inside the application has ended", exc_info=running.exception())


def get_holdfast(connection: HTTPConnection) -> Holdfast:
    found = getattr(connection.app.state, "holdfast", None)
    if not isinstance(found, Holdfast):
        raise ConfigError("The application has no Holdfast: make it with FastAPI(lifespan=lifespan(hf)).")
    return found


HoldfastDep = Annotated[Holdfast, Depends(get_holdfast)]
"""`async def order(hf: HoldfastDep)`."""
