"""procrastinate on psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version

from procrastinate import App, PsycopgConnector

from bench.peers.body import body

VERSION = version("procrastinate")
SETTINGS = "psycopg, uvloop, concurrency 50 (1), pool 20, LISTEN, delete_jobs successful (never)"
RESCUE = "heartbeat 1 s (10), jobs of workers silent for 5 s (30) retried by a loop beside the worker, as its docs advise"
DRAIN_JOBS = 20_000
UNFINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
COPY = {"procrastinate_jobs": {"id": None}}


class Queue:
    def __init__(self, url: str) -> None:
        self._app = App(connector=PsycopgConnector(conninfo=url, max_size=20))
        self._job = self._app.task(name="job")(body)

    async def open(self) -> None:
        await self._app.open_async()

    async def setup(self) -> None:
        await self._app.schema_manager.apply_schema_async()

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._job.defer_async(kind=kind, value=value)

    async def enqueue_many(self, kind: str, values: Sequence[float]) -> None:
        await self._job.batch_defer_async(*({"kind": kind, "value": value} for value in values))

    async def work(self, *, gentle: bool) -> None:
        if not gentle:
            await self._app.run_worker_async(concurrency=50, delete_jobs="successful")
            return
        rescue = asyncio.create_task(self._rescue())
        await self._app.run_worker_async(
            concurrency=10, delete_jobs="successful", update_heartbeat_interval=1.0, stalled_worker_timeout=5.0
        )
        rescue.cancel()

    async def _rescue(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            try:
                for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=5.0):
                    await self._app.job_manager.retry_job(job)
            except Exception as error:
                print(f"rescue: {error}")
