"""No open file crosses a fork.

Locks on a file belong to a process, and SQLite keeps account of those of its own: a child that inherits a connection takes the
parent's locks for its own, and one of the two may remove the write-ahead log that the other writes. A fork therefore waits
until no connection is in use, closes them all, and both sides open their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

FORK_WAIT_SECONDS = 2.0


class InUse:
    """How many connections of a store are in use."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._forking = False

    def begin(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._count += 1

    def end(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def one(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()

    def pause(self) -> bool:
        """From here to `resume` none begins; whether none is in use. A transaction that the forking thread itself keeps open
        would never end, so the wait is short."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            self._forking = True
            return self._changed.wait_for(lambda: self._count == 0, FORK_WAIT_SECONDS)

    def resume(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()
