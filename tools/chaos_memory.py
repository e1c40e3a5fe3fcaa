"""Memory in a campaign of chaos: a worker that gets none for a while, and whether anybody takes more and more of it."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.support.processes import Process
from tools.process_stats import taken_by_process

SAMPLE_SECONDS = 1.0
WARM_SECONDS = 5.0
"""Before that a process still imports what it needs."""
GROWTH_MB_MAX = 64.0


class Seen(NamedTuple):
    first: float
    last: float


class Memory:
    """What each process took when it was warm, and what it takes now."""

    def __init__(self, everybody: Callable[[], Iterable[Process]]) -> None:
        self._everybody = everybody
        self._born: dict[int, float] = {}
        self._seen: dict[int, Seen] = {}
        self.most = 0.0

    async def run_until(self, over: Callable[[], bool]) -> None:
        while not over():
            self._look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def _look(self) -> None:
        now = time.monotonic()
        for process in self._everybody():
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                took = taken_by_process(process.pid).rss_mb
                self.most = max(self.most, took)
                if now - self._born.setdefault(process.pid, now) > WARM_SECONDS:
                    seen = self._seen.get(process.pid, Seen(took, took))
                    self._seen[process.pid] = seen._replace(last=took)

    def wrongs(self) -> list[str]:
        return [
            f"process {pid} grew from {seen.first:.0f} to {seen.last:.0f} MB"
            for pid, seen in self._seen.items()
            if seen.last - seen.first > GROWTH_MB_MAX
        ]


async def starve(process: Process, seconds: float, spare_mb: float) -> None:
    """It may take so much more than it has, and then every allocation of its fails."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # it has just ended
        limit = _address_space(process) + int(spare_mb * 2**20)
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, hard))
        await asyncio.sleep(seconds)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (hard, hard))


def _address_space(process: Process) -> int:
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
