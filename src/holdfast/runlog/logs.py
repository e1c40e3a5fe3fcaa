"""The logs of a worker's runs: a task appends and goes on; one thread numbers, redacts and writes the lines of all runs.

The thread has a loop and a connection of its own, so that a task which never awaits is heard while it runs. It is started by
the first line: a worker whose tasks say nothing pays nothing. A log that cannot be written never fails the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from holdfast.runlog.desk import THREAD_WAIT_SECONDS, Desk, RunBuffer
from holdfast.runlog.writer import LogWriter
from holdfast.settings import Settings
from holdfast.store.protocol import Store

log = logging.getLogger("holdfast")

STUCK_SECONDS = 5.0
"""A run that has ended waits for its last lines as long as some are written within this time."""


class RunLogs:
    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings
        self._desk = Desk(self._wake, self._hurry)
        self._writer: LogWriter | None = None
        self._stopped = False

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the worker's process, where nothing writes."""
        return self._desk.inherited

    def open(self, job_id: str, run_id: str) -> RunBuffer:
        return RunBuffer(job_id, run_id, self._settings, self._desk)

    async def close(self, buffer: RunBuffer) -> None:
        """The run is about to end: its last chance to keep what it said."""
        ended = asyncio.get_running_loop().create_future()
        self._end(buffer, ended)
        while not ended.done():
            before = buffer.unkept
            await asyncio.wait([ended], timeout=STUCK_SECONDS)
            if not ended.done() and buffer.unkept == before:
                with self._desk.lock:
                    self._desk.abandon(buffer)
        if lost := buffer.unkept + buffer.lost:
            log.warning("%d log lines of job %s could not be kept.", lost, buffer.job_id)

    def _end(self, buffer: RunBuffer, ended: asyncio.Future[None]) -> None:
        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # that loop is closed: nobody waits
                ended.get_loop().call_soon_threadsafe(_finish, ended)

        with self._desk.lock:
            buffer.over = True
            if buffer.settled:
                ended.set_result(None)
                return
            buffer.on_end = tell
            self._desk.closing.add(buffer)
            self._desk.gained(buffer)
            if self._writer is None or self._stopped:
                self._desk.abandon(buffer)
            else:
                self._hurry()

    async def room(self, buffer: RunBuffer) -> None:
        """Wait a while if much is waiting already."""
        over_at = time.monotonic() + THREAD_WAIT_SECONDS
        while buffer.should_wait and time.monotonic() < over_at:  # noqa: ASYNC110 - room is made by another thread
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._stopped = True
        if self._writer is not None:
            self._writer.stop()
            await asyncio.to_thread(self._writer.join, STUCK_SECONDS)

    def _wake(self) -> bool:
        if self._writer is None and not self._stopped:
            writer = LogWriter(self._store, self._desk)
            with contextlib.suppress(RuntimeError):  # this machine has no thread left: the next line tries again
                writer.start()
                self._writer = writer
        if self._writer is not None:
            self._writer.wake()
        return self._writer is not None

    def _hurry(self) -> None:
        if self._writer is not None:
            self._writer.hurry()


def _finish(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)
