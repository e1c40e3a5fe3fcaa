"""One queue on its store: what a measurement needs of it, and the backlogs it keeps to copy from."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.peers.catalog import Peer
from bench.peers.plan import Plan
from bench.peers.processes import Child, Workers
from bench.peers.stores import Postgres, Store

POLL_SECONDS = 0.005
START_SECONDS = 60.0


class Scene:
    def __init__(self, peer: Peer, store: Store, python: str, plan: Plan) -> None:
        self.peer = peer
        self.plan = plan
        self._store = store
        self._python = python
        self._templates: dict[int, str] = {}

    async def open(self) -> None:
        self.about: dict[str, Any] = await self.act("-", "describe")

    @property
    def postgres(self) -> Postgres | None:
        return self._store if isinstance(self._store, Postgres) else None

    async def act(self, url: str, part: str, *arguments: object, seconds: float = 600.0) -> Any:
        """Let a process of its own do one part; its answer."""
        child = await Child.start(self._python, self.peer.name, url, part, *map(str, arguments))
        try:
            await child.ready()
            child.go()
            return await child.answer(seconds)
        finally:
            await child.kill()

    @asynccontextmanager
    async def place(self, jobs: int = 0) -> AsyncIterator[str]:
        """A place for one measurement, with so many no-op jobs waiting."""
        url = await self._place(jobs)
        try:
            yield url
        finally:
            await self._store.drop(url)

    async def _place(self, jobs: int) -> str:
        if self.postgres is None:
            return await self._filled(jobs)
        if jobs not in self._templates:
            url = await self._filled(jobs)
            await self.postgres.settle(url)
            self._templates[jobs] = url
        return await self.postgres.copy_of(self._templates[jobs])

    async def _filled(self, jobs: int) -> str:
        url = await self._store.fresh()
        await self.act(url, "setup")
        if jobs and self.about["copy"] and self.postgres is not None:
            await self.act(url, "fill", "noop", 1)
            await self.postgres.multiply(url, self.about["copy"], jobs)
        elif jobs:
            await self.act(url, "fill", "noop", jobs)
        return url

    async def forget(self, jobs: int) -> None:
        """Drop a backlog that is large and no longer needed."""
        if jobs in self._templates:
            await self._store.drop(self._templates.pop(jobs))

    @asynccontextmanager
    async def workers(self, url: str, count: int, *, gentle: bool = False) -> AsyncIterator[Workers]:
        workers = Workers(self._python, self.peer.name, url, gentle=gentle)
        try:
            await workers.start(count)
            yield workers
        finally:
            await workers.close()

    async def unfinished(self, url: str) -> int | None:
        if self.postgres is None or self.about["unfinished"] is None:
            return None
        return int(await self.postgres.ask(url, self.about["unfinished"]))

    async def all_finished(self, url: str, seconds: float) -> bool:
        """Whether the database says so within that time; at once where it cannot be asked."""
        ends = time.monotonic() + seconds
        while await self.unfinished(url):
            if time.monotonic() > ends:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True


async def until_tally(workers: Workers, jobs: int, seconds: float) -> bool:
    """Whether so many jobs were noted down within that time."""
    ends = time.monotonic() + seconds
    while len(workers.tally) < jobs:
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
