"""Code that runs in the middle of other code of its own thread, as finalizers, signal handlers and tracing hooks do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

MOST = 100


class Interrupting:
    """A tracing hook that acts at each line of one file that the thread passes, up to a hundred times."""

    def __init__(self, file: str, act: Callable[[], object]) -> None:
        self._file = file
        self._act = act
        self.acted = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> Interrupting | None:
        if frame.f_code.co_filename != self._file or self.acted == MOST:
            return None
        sys.settrace(None)
        self.acted += 1
        self._act()
        sys.settrace(self)
        return self


def ends(hook: Interrupting, work: Callable[[], object]) -> bool:
    """In a thread of its own, so that one which waits for itself fails the test instead of holding it up."""

    def interrupted() -> None:
        sys.settrace(hook)
        work()
        sys.settrace(None)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(20)
    return not thread.is_alive()
