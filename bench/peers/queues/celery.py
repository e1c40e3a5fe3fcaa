"""Celery on Redis."""

from __future__ import annotations

from importlib.metadata import version

from celery import Celery

from bench.peers.body import body_sync

VERSION = version("celery")
SETTINGS = "Redis without persistence, prefork with 1 process, prefetch 1,000 (4), no results"
RESCUE = "acks_late (early), prefetch 1, visibility_timeout 5 s (3,600)"
DRAIN_JOBS = 8_000
UNFINISHED = None
COPY = None


class Queue:
    def __init__(self, url: str) -> None:
        self._app = Celery("bench", broker=url)
        self._app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1000)
        self._job = self._app.task(name="job")(body_sync)

    async def open(self) -> None:
        """A connection is opened by the first job."""

    async def setup(self) -> None:
        """Redis needs none."""

    async def enqueue_one(self, kind: str, value: float) -> None:
        self._job.delay(kind, value)

    async def work(self, *, gentle: bool) -> None:
        if gentle:
            self._job.acks_late = True
            self._app.conf.update(worker_prefetch_multiplier=1, broker_transport_options={"visibility_timeout": 5})
        self._app.worker_main(["worker", "--concurrency=1", "--pool=prefork", "--loglevel=ERROR", "--without-mingle"])
