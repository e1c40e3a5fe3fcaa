"""Threads for tasks that are plain functions. Nothing can stop a thread: one that is given up is left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from holdfast.thread_starts import Executor

TELL_AGAIN_SECONDS = 0.1


class TaskThreads:
    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: Executor | None = None
        self._working: set[Future[Any]] = set()

    @property
    def working(self) -> int:
        return len(self._working)

    async def call(self, fn: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = Executor(self._size, thread_name_prefix="holdfast task")
        call = Call(fn)
        try:
            future = self._pool.submit(call.run)
        except BaseException:
            call.given_up = True  # no thread could be started, but it waits in line for those that there are
            raise
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        try:
            ok, value = await call.outcome
        except asyncio.CancelledError:
            future.cancel()
            raise
        if not ok:
            raise value
        return value

    def leave_one_behind(self) -> None:
        """A run gave up on its thread, which goes on: the next jobs get threads of their own instead of waiting for it."""
        self.close()
        self._pool = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class Call:
    """One call on its way through a thread, and who waits for it."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.given_up = False
        self._fn = fn
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[bool, Any]] = self._loop.create_future()

    def run(self) -> None:
        """In the thread. Nobody else knows that the call has ended, so it is told until there is memory to tell it with."""
        if self.given_up:
            return
        outcome = _guarded(self._fn)
        while True:
            try:
                self._loop.call_soon_threadsafe(self._settle, outcome)
                return
            except MemoryError:
                time.sleep(TELL_AGAIN_SECONDS)
            except RuntimeError:  # that loop has ended: nobody waits
                return

    def _settle(self, outcome: tuple[bool, Any]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def _guarded(fn: Callable[[], Any]) -> tuple[bool, Any]:
    """A task may raise anything, also what a future cannot carry (StopIteration) or what would end a loop (SystemExit)."""
    try:
        return True, fn()
    except BaseException as error:
        return False, error
