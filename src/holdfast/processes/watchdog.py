"""The watchdog: ends a process that is frozen, with the stacks of all its threads on standard error.

Nothing written in Python can do that: C code that keeps the interpreter lock, or a deadlock below it, stops every thread and
every signal handler. `faulthandler` has a timer in C that needs no lock. An event loop that answers sets it again and again.
It exits with code 1, so that whatever started this process starts another one; leases and fences take care of the jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SETTINGS_PER_LIMIT = 4
"""Each setting starts a thread in C, so not every moment; but one that fails must not leave the process without."""

_ends_at: float | None = None
_forks = 0
_lock = threading.RLock()


@asynccontextmanager
async def watched(seconds: float) -> AsyncIterator[None]:
    """The process ends when this event loop does not answer for so long; 0 is off."""
    if not seconds:
        yield
        return
    end_in(seconds)  # at once: the task begins later, and what is frozen by then stays so
    watching = asyncio.create_task(_watch(seconds), name="holdfast watchdog")
    try:
        yield
    finally:
        watching.cancel()
        disarm()


async def _watch(seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds / SETTINGS_PER_LIMIT)
        end_in(seconds)


def end_in(seconds: float) -> None:
    """End this process then, unless this is called again or disarmed before."""
    global _ends_at
    with _lock:  # or a fork might come between the look and the thread that the timer starts
        _ends_at = time.monotonic() + seconds
        if not _forks:
            _set_timer(seconds)


def disarm() -> None:
    global _ends_at
    _ends_at = None
    faulthandler.cancel_dump_traceback_later()


def _set_timer(seconds: float) -> None:
    # A number and not the stream, which would be flushed: that waits for a reader who may have stopped reading.
    with contextlib.suppress(RuntimeError, MemoryError):  # no thread to be had now; the next time perhaps
        faulthandler.dump_traceback_later(seconds, exit=True, file=_output())


_file: int | None = None


def _output() -> int:
    """Standard error, without waiting for a reader where that can be had: a full pipe must not keep the process from ending."""
    global _file
    if _file is None:
        try:
            _file = sys.__stderr__.fileno()  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):  # closed or replaced: its number may belong to another file by now
            _file = os.open(os.devnull, os.O_WRONLY)
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(_file).st_mode):
                _file = os.open(f"/proc/self/fd/{_file}", os.O_WRONLY | os.O_NONBLOCK)
    return _file


# A forked process has no such thread, but would wait for it without end when the interpreter ends.


def _before_fork() -> None:
    global _forks
    with _lock:
        _forks += 1
        if _ends_at is not None:
            faulthandler.cancel_dump_traceback_later()


def _after_fork() -> None:
    global _forks
    _forks -= 1
    if _ends_at is not None and not _forks:
        _set_timer(max(0.001, _ends_at - time.monotonic()))


def _forked() -> None:
    global _forks, _ends_at, _lock
    _forks, _ends_at, _lock = 0, None, threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)
