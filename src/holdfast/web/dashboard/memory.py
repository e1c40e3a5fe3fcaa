"""What pages count, remembered for a few seconds: however many look on, the database is asked once in a while."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

log = logging.getLogger("holdfast.web")

T = TypeVar("T")
Count = Callable[[], Awaitable[T]]

FRESH_SECONDS = 3.0
OLDEST_SECONDS = 10.0
"""A page that is open reads itself again every five seconds: it is shown what the reading before has begun to count."""
AFTERWARDS_SECONDS = 0.5
"""The whole count after a quick look begins once the page is out, and not beside it."""
ENTRIES_MAX = 1_000


class Subject(NamedTuple):
    """What was counted, and of whom: nobody is shown what was counted for another."""

    name: str
    tenant: str | None
    """None: of all, for those who may see all."""
    part: str = ""


class Memory:
    """Young figures are shown as they are. Older ones are shown too, while they are counted anew in the background. What is
    older than OLDEST_SECONDS is shown to nobody: whoever asks waits, and all who ask meanwhile wait for the same count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, afterwards: float = AFTERWARDS_SECONDS) -> None:
        self._clock = clock
        self._afterwards = afterwards
        self._found: dict[Subject, tuple[float, Any]] = {}
        self._counting: dict[Subject, asyncio.Task[Any]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        """Held here while they run, also those that were forgotten: the event loop does not hold them."""

    async def get(self, subject: Subject, count: Count[T], at_first: Count[T] | None = None) -> T:
        """`at_first`: a quicker look where nothing is remembered; the whole count follows in the background."""
        when, value = self._found.get(subject, (None, None))
        age = OLDEST_SECONDS if when is None else self._clock() - when
        if age < FRESH_SECONDS:
            return value  # type: ignore[return-value]
        if age < OLDEST_SECONDS:
            self._begin(subject, count)
            return value  # type: ignore[return-value]
        if at_first is None:
            found: T = await asyncio.shield(self._begin(subject, count))
            return found
        looked = await self.get(subject._replace(part=f"{subject.part} at first"), at_first)
        self._begin(subject, count, self._afterwards)
        return looked

    def forget(self, tenant: str | None) -> None:
        """After something was done: what is counted of this tenant, and of all; of everything, where it was done for all."""
        for subject in [one for one in {*self._found, *self._counting} if tenant is None or one.tenant in (None, tenant)]:
            self._found.pop(subject, None)
            self._counting.pop(subject, None)  # it may have looked before the change: nobody is to remember what it finds

    async def settled(self) -> None:
        """Until nothing is being counted."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, subject: Subject, count: Count[Any], after: float = 0.0) -> asyncio.Task[Any]:
        task = self._counting.get(subject)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._counting[subject] = asyncio.ensure_future(self._count(subject, count, after))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        return task

    async def _count(self, subject: Subject, count: Count[Any], after: float) -> Any:
        mine = asyncio.current_task()
        try:
            if after:
                await asyncio.sleep(after)
                if self._counting.get(subject) is not mine:
                    return None  # forgotten meanwhile, and nobody waits for it
            began = self._clock()
            value = await count()
            if self._counting.get(subject) is mine:
                self._remember(subject, began, value)
            return value
        finally:
            if self._counting.get(subject) is mine:
                del self._counting[subject]

    def _remember(self, subject: Subject, when: float, value: Any) -> None:
        self._found.pop(subject, None)
        if len(self._found) >= ENTRIES_MAX:
            del self._found[next(iter(self._found))]  # the one that was counted longest ago
        self._found[subject] = (when, value)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Who waits is told of a failure by the task itself; where nobody does, the next one who asks counts again."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.debug("a count of the dashboard failed: %s", task.exception())
