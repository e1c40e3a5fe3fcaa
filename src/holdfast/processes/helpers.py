"""What a worker does beside its runs, for as long as it lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Failed = Callable[[str, BaseException], None]


class Helpers:
    """A helper that fails is told of at once: nobody else writes outcomes, for one, and a worker without it would keep its
    leases for runs that have ended long ago."""

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task.get_name(), error)
