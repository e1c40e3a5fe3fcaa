"""dramatiq on Redis."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import dramatiq as library
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import Retries

from bench.peers.body import body_sync

VERSION = version("dramatiq")
SETTINGS = "Redis without persistence, 8 threads, of the middleware only Retries"
RESCUE = "heartbeat_timeout 5 s (60), maintenance_chance 10 % (0.1 %)"
DRAIN_JOBS = 20_000
UNFINISHED = None
COPY = None


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url
        self._use(RedisBroker(url=url, middleware=[Retries()]))

    def _use(self, broker: RedisBroker) -> None:
        self._broker = broker
        self._job = library.actor(broker=broker, actor_name="job")(body_sync)

    async def open(self) -> None:
        """A connection is opened by the first job."""

    async def setup(self) -> None:
        """Redis needs none."""

    async def enqueue_one(self, kind: str, value: float) -> None:
        self._job.send(kind, value)

    async def work(self, *, gentle: bool) -> None:
        if gentle:
            rescue = {"heartbeat_timeout": 5000, "maintenance_chance": 100_000}
            self._use(RedisBroker(url=self._url, middleware=[Retries()], **rescue))
        library.Worker(self._broker, worker_threads=8).start()
        await asyncio.Event().wait()
