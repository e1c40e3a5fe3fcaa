"""The one way from sync code into the async core: an event loop in a background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import HoldfastError, StorageUnavailable
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.thread_starts import start

T = TypeVar("T")

END_SECONDS = 5.0
"""How long calls that were cancelled may take to end."""
_here = threading.local()
_CLOSED = "This Holdfast object was closed during the call; whether the call took effect is unknown."


def others_wait_for_this_thread() -> None:
    """Called by a thread of Holdfast that calls end in: were it to make one itself, it would wait for itself."""
    _here.serves = True


class _Background:
    """A loop, its thread, and the calls on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._main, name="holdfast portal", daemon=True)
        self.waiting: set[Future[Any]] = set()
        """Of all callers. To add and to discard is atomic."""
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    def _main(self) -> None:
        self.loop.run_forever()
        while rest := asyncio.all_tasks(self.loop):
            for task in rest:
                task.cancel()
            _, stuck = self.loop.run_until_complete(asyncio.wait(rest, timeout=END_SECONDS))
            if stuck:
                break

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        future = asyncio.run_coroutine_threadsafe(self._call(work), self.loop)
        self.waiting.add(future)
        future.add_done_callback(self.waiting.discard)
        return future

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        if self._closed:
            work.close()
            raise StorageUnavailable(_CLOSED)
        self._calls.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if self._closed:
                raise StorageUnavailable(_CLOSED) from None
            raise
        finally:
            self._calls.discard(task)

    async def _end(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._closed = True
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=END_SECONDS)
        await farewell()

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._end(farewell), self.loop).result()
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(2 * END_SECONDS)
            for future in list(self.waiting):
                with suppress(InvalidStateError):  # it has just been answered
                    future.set_exception(StorageUnavailable(_CLOSED))
            if not self.thread.is_alive():
                self.loop.close()


async def _nothing() -> None:
    return None


class Portal:
    """Started at the first call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._background: _Background | None = None
        reset_after_fork(self)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait for it here."""
        if getattr(_here, "serves", False):
            work.close()
            raise HoldfastError(
                "A finalizer called a _sync method in a thread of Holdfast itself, which would wait for itself; "
                "call it from a thread of your own."
            )
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise HoldfastError(
                "A _sync method was called inside an event loop and would block it; await the async one instead."
            )
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there and go on here; whatever becomes of the caller, it is not cancelled. Only a close ends it."""
        with self._lock:
            return self._running().submit(work)

    def close(self, farewell: Callable[[], Coroutine[Any, Any, None]] = _nothing) -> None:
        """Callers that still wait get StorageUnavailable. `farewell` runs after them, as the last thing on this loop."""
        with self._lock:
            background, self._background = self._background, None
        if background is not None:
            background.close(farewell)

    @property
    def started(self) -> bool:
        return self._background is not None

    def _running(self) -> _Background:
        if self._background is None:
            made = _Background()
            if self._background is None:  # a finalizer or signal handler may have called while ours was made
                self._background = made
                start(made.thread)
            else:
                made.loop.close()
        return self._background

    def _reset_after_fork(self) -> None:
        keep_for_parent(self._background)
        self._lock, self._background = threading.RLock(), None
