"""While one insert is on its way, those of other callers gather and share the next statement.

A NOTIFY makes commits queue up behind each other, so twenty callers with a statement each are slower than one.
A single caller waits for nobody.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Sequence

from holdfast.errors import StorageError, StorageUnavailable
from holdfast.store.protocol import Inserted, NewJob

CALLS_PER_STATEMENT_MAX = 500

Insert = Callable[[Sequence[NewJob]], Awaitable[list[Inserted]]]
Call = tuple[Sequence[NewJob], "asyncio.Future[list[Inserted]]"]


class _Lane:
    """The calls of one event loop."""

    def __init__(self) -> None:
        self.waiting: list[Call] = []
        self.task: asyncio.Task[None] | None = None


class Gathering:
    def __init__(self, insert: Insert) -> None:
        self._insert = insert
        self._lanes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Lane] = weakref.WeakKeyDictionary()

    async def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        loop = asyncio.get_running_loop()
        lane = self._lanes.setdefault(loop, _Lane())
        answer: asyncio.Future[list[Inserted]] = loop.create_future()
        lane.waiting.append((jobs, answer))
        if lane.task is None:
            lane.task = loop.create_task(self._work_off(lane))
        return await answer

    async def _work_off(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                calls = [call for call in lane.waiting[:CALLS_PER_STATEMENT_MAX] if not call[1].cancelled()]
                del lane.waiting[:CALLS_PER_STATEMENT_MAX]
                await self._insert_together(calls)
        finally:
            lane.task = None

    async def _insert_together(self, calls: list[Call]) -> None:
        try:
            found = iter(await self._insert([job for jobs, _ in calls for job in jobs]))
        except Exception as error:
            if len(calls) > 1 and isinstance(error, StorageError) and not isinstance(error, StorageUnavailable):
                for call in calls:  # one of them is bad; the others must not suffer for it
                    await self._insert_together([call])
                return
            for _, answer in calls:
                if not answer.done():
                    answer.set_exception(error)
            return
        for jobs, answer in calls:
            mine = [next(found) for _ in jobs]
            if not answer.done():
                answer.set_result(mine)
