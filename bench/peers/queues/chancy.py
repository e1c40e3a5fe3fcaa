"""chancy on psycopg, with its asyncio executor."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import version

from chancy import Chancy, Job, Worker
from chancy import Queue as ChancyQueue
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

from bench.peers.body import body

VERSION = version("chancy")
SETTINGS = (
    "psycopg, uvloop, AsyncExecutor (processes), concurrency 1,000, eager_polling (off), polls each 1 s (5), "
    "send_outgoing_interval 0.05 s (1)"
)
RESCUE = "heartbeat each 1 s (30), a worker is dead after 5 s (90), Recovery each 1 s (60), Leadership each 1 s, 5 s (60, 120)"
DRAIN_JOBS = 40_000
UNFINISHED = "SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed', 'expired')"
COPY = {"chancy_jobs": {"id": "gen_random_uuid()"}}

_LOG = logging.getLogger("bench.chancy")
"""Its own writes a line for each job."""


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url
        self._chancy = Chancy(url, log=_LOG)

    async def open(self) -> None:
        await self._chancy.pool.open()

    async def setup(self) -> None:
        await self._chancy.migrate()
        await self._declare(1000)

    async def _declare(self, concurrency: int) -> None:
        queue = ChancyQueue(
            "default", concurrency=concurrency, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
        )
        await self._chancy.declare(queue, upsert=True)

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._chancy.push(_job(kind, value))

    async def enqueue_many(self, kind: str, values: Sequence[float]) -> None:
        async for _ in self._chancy.push_many([_job(kind, value) for value in values]):
            pass

    async def work(self, *, gentle: bool) -> None:
        if gentle:
            plugins = [Leadership(poll_interval=1, timeout=5), Recovery(poll_interval=1)]
            self._chancy = Chancy(self._url, plugins=plugins, log=_LOG)
            await self._chancy.pool.open()
            await self._declare(10)
            worker = Worker(self._chancy, heartbeat_poll_interval=1, heartbeat_timeout=5)
        else:
            worker = Worker(self._chancy)
        worker.send_outgoing_interval = 0.05
        async with worker:
            await worker.wait_for_shutdown()


def _job(kind: str, value: float) -> Job:
    return Job.from_func(body, kwargs={"kind": kind, "value": value})
