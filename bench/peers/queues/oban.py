"""oban for Python."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.peers.body import body

VERSION = version("oban")
SETTINGS = "psycopg, uvloop, queue limit 200, pool 10; needs Python 3.12 or newer"
RESCUE = "lifeline each 1 s (60), rescue_after 5 s (300), refresher each 1 s (15), max_age 5 s (60)"
DRAIN_JOBS = 40_000
UNFINISHED = "SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'discarded', 'cancelled')"
COPY = {"oban_jobs": {"id": None}}


@worker(queue="default")
class Body:
    async def process(self, job: Any) -> None:
        await body(job.args["kind"], job.args["value"])


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._pool = AsyncConnectionPool(self._url, min_size=2, max_size=10, open=False)
        await self._pool.open()
        self._sender = Oban(pool=self._pool)

    async def setup(self) -> None:
        await install(self._pool)

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._sender.enqueue(Body.new({"kind": kind, "value": value}))

    async def enqueue_many(self, kind: str, values: Sequence[float]) -> None:
        await self._sender.enqueue_many([Body.new({"kind": kind, "value": value}) for value in values])

    async def work(self, *, gentle: bool) -> None:
        rescue: dict[str, Any] = {}
        if gentle:
            rescue = {"lifeline": {"interval": 1.0, "rescue_after": 5.0}, "refresher": {"interval": 1.0, "max_age": 5.0}}
        await Oban(pool=self._pool, queues={"default": 10 if gentle else 200}, **rescue).start()
        await asyncio.Event().wait()
