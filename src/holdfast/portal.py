"""The one way from sync code into the async core: an event loop in a background thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.thread_starts import start

T = TypeVar("T")


class Portal:
    """Started at the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it there, wait for it here."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise HoldfastError(
                "A _sync method was called inside an event loop and would block it; await the async one instead."
            )
        future = asyncio.run_coroutine_threadsafe(work, self._running_loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there and go on here; whatever becomes of the caller, it is not cancelled."""
        return asyncio.run_coroutine_threadsafe(work, self._running_loop())

    def close(self) -> None:
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            loop.close()

    @property
    def started(self) -> bool:
        return self._loop is not None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="holdfast portal", daemon=True)
                start(self._thread)
            return self._loop
