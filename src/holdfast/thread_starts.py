"""Threads are started here, so that one that never begins is noticed.

`Thread.start` returns when its thread runs. A thread that gets no memory dies before that, and the caller waits forever: often
the event loop, with every run on it. Each start therefore stands in a list until it returns. The stacks of other threads are
never read for this: the function of `sys` that returns them holds a lock of the interpreter while it allocates, and Python
3.11 may then stop the whole process (python/cpython 106883).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOOKS = 5
"""In a row, besides the seconds: a process that was stopped for a while finds its starts old, but finds them returning."""


class _Start:
    def __init__(self, name: str) -> None:
        self.name = name
        self.since = time.monotonic()


_under_way: dict[_Start, None] = {}
"""No lock: a signal handler may start a thread while the main thread starts one. `copy` and single changes are atomic."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)  # the threads that make these starts are the parent's


@contextmanager
def _noted(name: str) -> Iterator[None]:
    one = _Start(name)
    _under_way[one] = None
    try:
        yield
    finally:
        _under_way.pop(one, None)


def start(thread: threading.Thread) -> None:
    with _noted(thread.name):
        thread.start()


class Executor(ThreadPoolExecutor):
    """A pool whose `submit`, which starts threads, is watched as well."""

    def __init__(
        self, max_workers: int | None = None, *, thread_name_prefix: str, initializer: Callable[[], None] | None = None
    ) -> None:
        super().__init__(max_workers, thread_name_prefix, initializer)
        self._name = thread_name_prefix

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with _noted(self._name):
            return super().submit(fn, *args, **kwargs)


class ThreadStarts:
    """Finds starts that do not return."""

    def __init__(self) -> None:
        self._looks: dict[_Start, int] = {}
        self._reported: set[_Start] = set()

    def stuck(self, seconds: float) -> str | None:
        """The name of a thread whose start has not returned for several looks and so many seconds. Each is reported once."""
        under_way = _under_way.copy()
        self._looks = {one: self._looks.get(one, 0) + 1 for one in under_way}
        self._reported &= under_way.keys()
        now = time.monotonic()
        for one, looks in self._looks.items():
            if looks >= LOOKS and now - one.since >= seconds and one not in self._reported:
                self._reported.add(one)
                return one.name
        return None
