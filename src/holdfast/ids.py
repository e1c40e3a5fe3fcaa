"""Ids: time-ordered for jobs (they sit next to each other in the index), random for runs (nobody guesses a fence)."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime

FIRST_ID = "00000000-0000-0000-0000-000000000000"
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
"""All ids lie between these."""
_lock = threading.RLock()
_last = 0
"""Of the newest job id: its milliseconds, and twelve bits that count within one."""
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_job_id() -> str:
    """A UUID version 7. Ids made by one process ascend, also within a millisecond and when its clock steps back.

    Nothing that must be right depends on the time inside: order is decided by the database's own sequence.
    """
    noise = os.urandom(10).hex()
    return _job_id(_next(1, noise), noise[4:])


def new_job_ids(count: int) -> list[str]:
    """So many at once, ascending; each costs half as much as one alone."""
    noise = os.urandom(2 + 8 * count).hex()
    first = _next(count, noise)
    return [_job_id(first + number, noise[4 + 16 * number : 20 + 16 * number]) for number in range(count)]


def _next(count: int, noise: str) -> int:
    """The first of so many consecutive numbers that nobody has had."""
    global _last
    moment = time.time_ns() // 1_000_000 << 12 | int(noise[:4], 16) >> 5
    # A finalizer or a signal handler that enqueues may interrupt the thread inside this lock: nothing is called in between.
    with _lock:
        first = moment if moment > _last else _last + 1
        _last = first + count - 1
    return first


def _forget_holder() -> None:
    """In a forked child the thread that held the lock does not exist."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_holder)


def _job_id(number: int, noise: str) -> str:
    head = f"{number:015x}"
    return f"{head[:8]}-{head[8:12]}-7{head[12:]}-{_VARIANT[noise[0]]}{noise[1:4]}-{noise[4:]}"


def new_run_id() -> str:
    """A UUID version 4."""
    return _run_id(os.urandom(16).hex())


def new_run_ids(count: int) -> list[str]:
    noise = os.urandom(16 * count).hex()
    return [_run_id(noise[at : at + 32]) for at in range(0, 32 * count, 32)]


def _run_id(noise: str) -> str:
    return f"{noise[:8]}-{noise[8:12]}-4{noise[13:16]}-{_VARIANT[noise[16]]}{noise[17:20]}-{noise[20:]}"


def new_worker_id(host: str, pid: int) -> str:
    return f"{host}-{pid}-{os.urandom(3).hex()}"


def is_uuid(text: object) -> bool:
    if not isinstance(text, str) or len(text) != 36:
        return False
    return all(c in "0123456789abcdef" if i not in (8, 13, 18, 23) else c == "-" for i, c in enumerate(text.lower()))


def first_job_id_at(moment: datetime) -> str:
    """The smallest job id that could have been made at this moment: a bound for scans by age."""
    text = f"{max(0, int(moment.timestamp() * 1000)):012x}"
    return f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
