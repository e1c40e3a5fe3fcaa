"""Threads for tasks that are plain functions. Nothing can stop a thread: one that is given up is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class TaskThreads:
    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ThreadPoolExecutor | None = None
        self._working: set[Future[Any]] = set()

    @property
    def working(self) -> int:
        return len(self._working)

    async def call(self, fn: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="holdfast task")
        future = self._pool.submit(_guarded, fn)
        self._working.add(future)
        future.add_done_callback(self._working.discard)
        ok, value = await asyncio.wrap_future(future)
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


def _guarded(fn: Callable[[], Any]) -> tuple[bool, Any]:
    """A task may raise anything, also what a future cannot carry (StopIteration) or what would end a loop (SystemExit)."""
    try:
        return True, fn()
    except BaseException as error:
        return False, error
