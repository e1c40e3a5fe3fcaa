"""huey on an SQLite file."""

from __future__ import annotations

from importlib.metadata import version

from huey import SqliteHuey

from bench.peers.body import body_sync

VERSION = version("huey")
SETTINGS = "SQLite, WAL, fsync on, 2 threads, polls each 10 ms (100 ms, growing to 10 s), no results"
RESCUE = "it has none: a task is deleted when it is handed out"
DRAIN_JOBS = 20_000
UNFINISHED = None
COPY = None


class Queue:
    def __init__(self, url: str) -> None:
        self._huey = SqliteHuey(filename=url, fsync=True, results=False)
        self._job = self._huey.task(name="job")(body_sync)

    async def open(self) -> None:
        """A connection is opened by the first statement."""

    async def setup(self) -> None:
        """The tables are made when it is constructed."""

    async def enqueue_one(self, kind: str, value: float) -> None:
        self._job(kind, value)

    async def work(self, *, gentle: bool) -> None:
        self._huey.create_consumer(workers=2, initial_delay=0.01, max_delay=0.01, periodic=False).run()
