"""DBOS: a queue of workflows without steps."""

from __future__ import annotations

import asyncio
import os
from importlib.metadata import version

from dbos import DBOS, DBOSClient

from bench.peers.body import body

VERSION = version("dbos")
SETTINGS = "psycopg, asynchronous workflow without steps, worker_concurrency 100, polls each 0.05 s (1), pool 20"
RESCUE = "a worker takes up the workflows of its own executor id when it starts; the killed one is started with the same id"
DRAIN_JOBS = 20_000
UNFINISHED = "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
COPY = {
    "dbos.workflow_status": {"workflow_uuid": "r.workflow_uuid || '-' || n"},
    "dbos.workflow_input": {"workflow_uuid": "r.workflow_uuid || '-' || n"},
}

_VERSION = "1"


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql://", "postgresql+psycopg://")

    async def open(self) -> None:
        self._client: DBOSClient | None = None

    async def setup(self) -> None:
        self._launch()
        await self._register(100)

    async def enqueue_one(self, kind: str, value: float) -> None:
        if self._client is None:
            self._client = DBOSClient(system_database_url=self._url)
        self._client.enqueue({"queue_name": "jobs", "workflow_name": "job", "app_version": _VERSION}, kind, value)

    async def work(self, *, gentle: bool) -> None:
        self._launch()
        await self._register(10 if gentle else 100)
        await asyncio.Event().wait()

    def _launch(self) -> None:
        DBOS(
            config={
                "name": "bench",
                "system_database_url": self._url,
                "sys_db_pool_size": 20,
                "application_version": _VERSION,
                "executor_id": os.environ.get("BENCH_WORKER", "setup"),
                "log_level": "WARNING",
            }
        )
        DBOS.workflow(name="job")(body)
        DBOS.launch()

    async def _register(self, concurrency: int) -> None:
        await DBOS.register_queue_async("jobs", worker_concurrency=concurrency, polling_interval_sec=0.05)
