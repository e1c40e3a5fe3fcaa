"""arq on Redis."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from bench.peers.body import body

VERSION = version("arq")
SETTINGS = "Redis without persistence, uvloop, max_jobs 100 (10), polls each 0.05 s (0.5), no results"
RESCUE = "job_timeout 1 s (300): a lost job is free again 10 s after that"
DRAIN_JOBS = 12_000
UNFINISHED = None
COPY = None


async def job(context: dict[str, Any], kind: str, value: float) -> None:
    await body(kind, value)


class Queue:
    def __init__(self, url: str) -> None:
        self._settings = RedisSettings.from_dsn(url)

    async def open(self) -> None:
        self._pool = await create_pool(self._settings)

    async def setup(self) -> None:
        """Redis needs none."""

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._pool.enqueue_job("job", kind, value)

    async def work(self, *, gentle: bool) -> None:
        worker = Worker(
            [func(job, name="job", keep_result=0)],
            redis_settings=self._settings,
            max_jobs=10 if gentle else 100,
            job_timeout=1 if gentle else 300,
            poll_delay=0.05,
            log_results=False,
        )
        await worker.async_run()
