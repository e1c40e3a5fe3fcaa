"""Ids: time-ordered for jobs (they sit next to each other in the index), random for runs (nobody guesses a fence)."""

from __future__ import annotations

import os
import threading
import time
from datetime import datetime

_lock = threading.Lock()
_last_ms = 0
_counter = 0


def new_job_id() -> str:
    """A UUID version 7. Ids made by one process ascend, also within a millisecond and when its clock steps back.

    Nothing that must be right depends on the time inside: order is decided by the database's own sequence.
    """
    global _last_ms, _counter
    with _lock:
        now_ms = time.time_ns() // 1_000_000
        if now_ms > _last_ms:
            _last_ms, _counter = now_ms, int.from_bytes(os.urandom(2), "big") >> 5
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        head = (_last_ms << 16) | 0x7000 | _counter
    tail = (int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF) | 0x8000_0000_0000_0000
    text = f"{head:016x}{tail:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_run_id() -> str:
    """A UUID version 4."""
    text = os.urandom(16).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


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
