"""saq with its PostgreSQL queue."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from saq.queue.postgres import PostgresQueue
from saq.worker import Worker

from bench.peers.body import body

VERSION = version("saq")
SETTINGS = "psycopg, uvloop, concurrency 100 (10), pool 4 to 20, ttl -1 (delete when done)"
RESCUE = "job timeout 2 s (10), 3 tries (1), sweep each 1 s (60)"
DRAIN_JOBS = 20_000
UNFINISHED = "SELECT count(*) FROM saq_jobs WHERE status IN ('new', 'queued', 'active', 'aborting')"
COPY = {
    "saq_jobs": {
        "key": "r.key || ':' || n",
        "lock_key": None,
        "job": "convert_to(replace(convert_from(r.job, 'UTF8'), r.key, r.key || ':' || n), 'UTF8')",
    },
}


async def job(context: dict[str, Any], *, kind: str, value: float) -> None:
    await body(kind, value)


class Queue:
    def __init__(self, url: str) -> None:
        self._queue = PostgresQueue.from_url(url, min_size=4, max_size=20)

    async def open(self) -> None:
        await self._queue.connect()

    async def setup(self) -> None:
        """The tables are made when it connects."""

    async def enqueue_one(self, kind: str, value: float) -> None:
        rescue = {"timeout": 2, "retries": 3} if kind == "nap" else {}
        await self._queue.enqueue("job", kind=kind, value=value, ttl=-1, **rescue)

    async def work(self, *, gentle: bool) -> None:
        timers = {"sweep": 1} if gentle else None
        await Worker(self._queue, [job], concurrency=10 if gentle else 100, timers=timers).start()
