"""The slots of a worker: each takes the next job the moment it is free. No task or timer is made per job."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable

from holdfast.store.protocol import Claimed

SLICE_SECONDS = 0.01
"""How long a slot may run jobs that never wait before it lets the claimer, the finisher and the others have the loop."""

WAITING_SECONDS_MAX = 1.0
"""A job that was claimed ahead and sees no job end for this long is given back."""

RunOne = Callable[[Claimed], Awaitable[None]]


class Slots:
    def __init__(self, size: int, run_one: RunOne, give_back: Callable[[list[Claimed]], None]) -> None:
        self.size = size
        self.busy = 0
        self.waiting: deque[Claimed] = deque()
        self._run_one = run_one
        self._give_back = give_back
        self._ended = 0
        self._look: asyncio.TimerHandle | None = None
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def offer(self, jobs: list[Claimed]) -> None:
        self.waiting.extend(jobs)
        self._wake_one()
        self._watch_what_waits()

    def _watch_what_waits(self) -> None:
        """Jobs are claimed ahead because jobs were short. If all slots now hold long ones, others should have them."""
        if self.waiting and self._look is None:
            later = asyncio.get_running_loop().call_later
            self._look = later(WAITING_SECONDS_MAX, self._give_back_what_waits, self._ended)

    def _give_back_what_waits(self, ended: int) -> None:
        self._look = None
        if self._ended == ended:
            self._give_back(self.take_back())
        self._watch_what_waits()

    def take_back(self) -> list[Claimed]:
        """What was claimed but has not started. From any thread."""
        jobs = []
        with contextlib.suppress(IndexError):
            while True:
                jobs.append(self.waiting.popleft())
        return jobs

    async def close(self, seconds: float) -> int:
        """How many slots could not be ended in this time, because their task refuses to be cancelled."""
        self._closing = True
        if self._look is not None:
            self._look.cancel()
        for task in self._tasks:
            task.cancel()
        return len((await asyncio.wait(self._tasks, timeout=seconds))[1]) if self._tasks else 0

    def _wake_one(self) -> None:
        while self._idle:
            future = self._idle.pop()
            if not future.done():
                future.set_result(None)
                return
        if len(self._tasks) < self.size:
            task = asyncio.create_task(self._slot(), name="holdfast slot")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _slot(self) -> None:
        loop = asyncio.get_running_loop()
        slice_ends = time.monotonic() + SLICE_SECONDS
        while not self._closing:
            try:
                claimed = self.waiting.popleft()
            except IndexError:
                future: asyncio.Future[None] = loop.create_future()
                self._idle.append(future)
                await future
                slice_ends = time.monotonic() + SLICE_SECONDS
                continue
            if self.waiting:
                self._wake_one()
            self.busy += 1
            try:
                await self._run_one(claimed)
            finally:
                self.busy -= 1
                self._ended += 1
            if time.monotonic() > slice_ends:
                await asyncio.sleep(0)
                slice_ends = time.monotonic() + SLICE_SECONDS
