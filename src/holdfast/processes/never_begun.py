"""Threads that were started and never began.

`Thread.start` waits until its thread says that it runs. One that gets no memory dies before it can say so, and whoever started
it waits without end: often the event loop, with every run on it. Nobody is told; only the waiting can be seen.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

LOOKS = 5
"""So often in a row, besides the seconds: a process that was frozen finds its threads late, but finds them."""
FRAMES_UP_TO_START = 4


class NeverBegun:
    def __init__(self) -> None:
        self._seen: dict[threading.Thread, tuple[int, float]] = {}
        self._told: set[threading.Thread] = set()

    def look(self, seconds: float) -> threading.Thread | None:
        """One that somebody has been waiting for in several looks and for so many seconds. Each is told of once."""
        now, before = time.monotonic(), self._seen
        awaited = {thread for frame in sys._current_frames().values() if (thread := _awaited_by(frame)) is not None}
        self._seen = {thread: (looks + 1, since) for thread in awaited for looks, since in [before.get(thread, (0, now))]}
        self._told &= awaited
        for thread, (looks, since) in self._seen.items():
            if looks >= LOOKS and now - since >= seconds and thread not in self._told:
                self._told.add(thread)
                return thread
        return None


def _awaited_by(innermost: FrameType) -> threading.Thread | None:
    """Whose start this thread is waiting for, if it is."""
    frame: FrameType | None = innermost
    for _ in range(FRAMES_UP_TO_START):
        if frame is None or frame.f_code.co_filename != threading.__file__:
            return None
        if frame.f_code.co_name == "start":
            found = frame.f_locals.get("self")
            return found if isinstance(found, threading.Thread) else None
        frame = frame.f_back
    return None
