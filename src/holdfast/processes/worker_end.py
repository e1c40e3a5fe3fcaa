"""How a worker ended, for whoever started it."""

from __future__ import annotations

import msgspec


class WorkerEnd(msgspec.Struct):
    """How a worker ended."""

    reason: str
    """`stopped`, `idle`, `lifetime`, `database_away` or `stuck` (a task hangs in this process, or a part of the worker failed:
    start a new one)."""
    jobs: int
    threads_left: int = 0
    """Threads and coroutines whose task did not end; nothing can stop them but the end of the process."""
