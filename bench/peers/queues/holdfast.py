"""Holdfast, through its public names only."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.body import body
from holdfast import Holdfast, __version__
from holdfast.task import Task

VERSION = __version__
SETTINGS = "concurrency 1,000 (10)"
RESCUE = "lease 5 s (300), heartbeat 1 s (15), reaper each 1 s (60), backoff 0.1 s (5)"
DRAIN_JOBS = 100_000
UNFINISHED = "SELECT count(*) FROM holdfast.jobs WHERE state IN ('queued', 'running')"
COPY = None

_QUICK_RESCUE = {"lease": 5.0, "heartbeat": 1.0, "reaper_interval": 1.0, "backoff_base": 0.1}


class Queue:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        self._use(Holdfast(self._url))

    def _use(self, app: Holdfast) -> None:
        self._app = app
        self._job = app.task(name="job")(body)
        self._nap = app.task(name="nap", lease=_QUICK_RESCUE["lease"])(body)  # a lease belongs to the job, not to the worker

    async def setup(self) -> None:
        await self._app.migrate()

    async def enqueue_one(self, kind: str, value: float) -> None:
        await self._task(kind).enqueue(kind, value)

    async def enqueue_many(self, kind: str, values: Sequence[float]) -> None:
        task = self._task(kind)
        await self._app.enqueue_many([task.job(kind, value) for value in values])

    def _task(self, kind: str) -> Task[..., None]:
        return self._nap if kind == "nap" else self._job

    async def work(self, *, gentle: bool) -> None:
        if gentle:
            self._use(Holdfast(self._url, **_QUICK_RESCUE))
        await self._app.run_worker(concurrency=10 if gentle else 1000)
