"""What a forked child must not share with its parent: threads, event loops, sockets, locks. Only the forking thread is copied.

An object that owns one of these calls `reset_after_fork(self)` when it is made. In the child its method of that name forgets
what belongs to the parent, without touching it: a socket that is closed properly there would end the parent's session.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol


class Resets(Protocol):
    def _reset_after_fork(self) -> None: ...


class Pauses(Protocol):
    def pause_for_fork(self) -> None: ...

    def resume_after_fork(self) -> None: ...


_resetting: dict[int, weakref.ref[Resets]] = {}
_pausing: dict[int, weakref.ref[Pauses]] = {}
"""By id. Not a WeakSet: another thread may add to it while a fork walks it."""
_of_parents: list[Any] = []


def reset_after_fork(one: Resets) -> None:
    _enlist(_resetting, one)


def pause_for_fork(one: Pauses) -> None:
    """For what no child may inherit at all: it is put away before the fork, and both sides go on afterwards."""
    _enlist(_pausing, one)


def _enlist(ones: dict[int, weakref.ref[Any]], one: Any) -> None:
    key = id(one)
    ones[key] = weakref.ref(one, lambda _: ones.pop(key, None))


def keep_for_parent(*ones: Any) -> None:
    """Never collected in the child: a finalizer would close what the parent still uses."""
    _of_parents.extend(ones)


def _each(ones: dict[int, weakref.ref[Any]], act: Callable[[Any], None]) -> None:
    for reference in list(ones.values()):
        one = reference()
        if one is not None:
            with suppress(Exception):  # a fork has no caller to report to, and the others must be reset all the same
                act(one)


_STARTS_PROGRAMS = {asyncio.create_subprocess_exec.__code__, asyncio.create_subprocess_shell.__code__}
_here = threading.local()


def _before_fork() -> None:
    """uvloop runs these hooks for each program that it starts. That shares nothing: files close at its exec."""
    _here.pauses = sys._getframe(1).f_code not in _STARTS_PROGRAMS
    if _here.pauses:
        _each(_pausing, lambda one: one.pause_for_fork())


def _after_fork() -> None:
    if getattr(_here, "pauses", False):
        _each(_pausing, lambda one: one.resume_after_fork())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=lambda: _each(_resetting, lambda one: one._reset_after_fork()),
    )


class ProcessLock:
    """A lock for `with` that each process has for itself: the thread that held it at a fork does not exist in the child."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        reset_after_fork(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()
