"""pgqueuer on asyncpg."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from importlib.metadata import version

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.body import body

VERSION = version("pgqueuer")
SETTINGS = "asyncpg, uvloop, batch_size 2,000 (10), pool 2 to 6, no concurrency limit"
RESCUE = "heartbeat_timeout 5 s (30), dequeue_timeout 1 s (30)"
DRAIN_JOBS = 100_000
UNFINISHED = "SELECT count(*) FROM pgqueuer"
COPY = None


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._driver = AsyncpgPoolDriver(await asyncpg.create_pool(self._url, min_size=2, max_size=6))
        self._queries = Queries(self._driver)

    async def setup(self) -> None:
        await self._queries.install()

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._queries.enqueue("job", json.dumps([kind, value]).encode())

    async def enqueue_many(self, kind: str, values: Sequence[float]) -> None:
        payloads = [json.dumps([kind, value]).encode() for value in values]
        await self._queries.enqueue(["job"] * len(payloads), payloads, [0] * len(payloads))

    async def work(self, *, gentle: bool) -> None:
        queue = PgQueuer(self._driver)

        @queue.entrypoint("job")
        async def run(job: Job) -> None:
            await body(*json.loads(job.payload or b""))

        if gentle:
            second = timedelta(seconds=1)
            await queue.run(batch_size=5, max_concurrent_tasks=10, dequeue_timeout=second, heartbeat_timeout=5 * second)
        else:
            await queue.run(batch_size=2000)
