"""Watch thread starts beside threads that come and go and leave garbage: `.venv/bin/python tools/thread_starts.py 1000000`.

The way before this one, `sys._current_frames`, stopped the whole process within seconds on Python 3.11.
"""

from __future__ import annotations

import sys
import threading
import time

from holdfast.thread_starts import ThreadStarts, start

BUSY_THREADS = 3


class Garbage:
    """Found by the garbage collector alone, which then runs Python code."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


def leave_garbage() -> None:
    for _ in range(100):
        Garbage()


def start_and_end_threads() -> None:
    while True:
        threads = [threading.Thread(target=leave_garbage) for _ in range(3)]
        for thread in threads:
            start(thread)
        for thread in threads:
            thread.join()


def main(looks: int) -> None:
    sys.setswitchinterval(1e-4)
    for _ in range(BUSY_THREADS):
        threading.Thread(target=start_and_end_threads, daemon=True).start()
    starts, began = ThreadStarts(), time.monotonic()
    for _ in range(looks):
        if (name := starts.stuck(60)) is not None:
            sys.exit(f"{name} never began")
    print(f"{looks:,} looks in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
