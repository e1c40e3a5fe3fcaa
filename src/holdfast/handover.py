"""One at a time, in order, from any thread, and also from code that interrupts the thread that is at work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """Calls `work` with each item that it is given.

    A plain lock around `work` is a trap: the garbage collector may run a `__del__`, or the interpreter a signal handler, in the
    thread that holds it, and what that prints or logs would wait for its own thread for ever. Here it is left to the holder.
    """

    def __init__(self, work: Callable[[T], None]) -> None:
        self._work = work
        self._lock = threading.RLock()
        self._busy = False
        self._items: deque[T] = deque()

    def give(self, item: T) -> None:
        """Done on return, unless the caller runs inside `work` itself: then soon after."""
        self._items.append(item)
        while True:
            with self._lock:
                if self._busy:  # further up in this very thread
                    return
                self._busy = True
                try:
                    while self._items:
                        self._work(self._items.popleft())
                finally:
                    self._busy = False
            if not self._items:
                return
