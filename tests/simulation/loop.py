"""An event loop without a world: its time jumps to the next timer, and a seed decides who is next.

Every callback belongs to a lane (one event loop of one simulated process). Within a lane they run in the order in which they
came, as asyncio promises; which lane is next is drawn. A process that is killed runs nothing any more, also no `finally`; one
that is frozen runs what became due meanwhile once it thaws.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import zlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

STEP_SECONDS = 1e-5
"""What every callback takes: on a clock that stands still, code that waits for a moment just ahead would wait for ever."""


class Process:
    """A simulated process."""

    def __init__(self, name: str, *, skew: float = 0.0) -> None:
        self.name = name
        self.skew = skew
        """Seconds by which its wall clock is ahead."""
        self.alive = True
        self.frozen = False
        self.due_while_frozen: list[tuple[Lane, asyncio.Handle]] = []

    @property
    def runs(self) -> bool:
        return self.alive and not self.frozen

    def thaw(self) -> None:
        self.frozen = False
        for lane, handle in self.due_while_frozen:
            lane.ready.append(handle)
        self.due_while_frozen.clear()


class Lane:
    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self.process = process
        self.ready: deque[asyncio.Handle] = deque()


current_lane: ContextVar[Lane] = ContextVar("simulated_lane")


class SimulatedTask(asyncio.Task[Any]):
    """Sets of tasks are walked in an order that depends on their hashes, which are addresses unless we say otherwise."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number  # first of all: asyncio puts a task into a set while it is made
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self.number


class SimulatedFuture(asyncio.Future[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class Stuck(Exception):
    """Nothing can happen any more, or far too much has."""


class SimulatedLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.digest = 0
        """Of who ran when: two runs with the same digest have taken the same way."""
        self.failure: BaseException | None = None
        self.over = False
        self._rng = rng
        self._numbers = itertools.count(1)
        self._timers: list[tuple[float, int, Lane, asyncio.TimerHandle]] = []
        self._lanes: list[Lane] = []
        self._kept: list[asyncio.Task[Any]] = []
        """So that nothing of a killed process is finalized, which would run its code."""
        self._main = self.lane("main", Process("main"))

    # -- lanes

    def lane(self, name: str, process: Process) -> Lane:
        lane = Lane(name, process)
        self._lanes.append(lane)
        return lane

    def spawn(self, lane: Lane, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = copy_context()
        context.run(current_lane.set, lane)
        task = self.create_task(work, context=context)
        task.add_done_callback(self._ended, context=context)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """What begins a lane must not end in an exception: nobody else would notice."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def forget(self, process: Process) -> None:
        self._lanes = [lane for lane in self._lanes if lane.process is not process]

    def fail(self, error: BaseException) -> None:
        """Ends the simulation."""
        self.failure = self.failure or error

    # -- what asyncio asks of a loop

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context or copy_context())
        if not self.over:
            self._lane_of(handle).ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context or copy_context())
        handle._scheduled = True  # type: ignore[attr-defined]
        if not self.over:
            heapq.heappush(self._timers, (when, next(self._numbers), self._lane_of(handle), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        future = SimulatedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        number = next(self._numbers)
        task = SimulatedTask(number, coro, loop=self, name=name or f"simulated {number}", context=context)
        self._kept.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An exception that nobody took is a failure of the code under test; what killed processes leave behind is not."""
        error = context.get("exception")
        if not self.over and error is not None:
            self.fail(error)

    def _lane_of(self, handle: asyncio.Handle) -> Lane:
        lane = handle._context.get(current_lane)  # type: ignore[attr-defined]
        return self._main if lane is None else lane

    # -- running

    def run(self, work: Coroutine[Any, Any, Any], *, steps_max: int) -> Any:
        asyncio._set_running_loop(self)
        try:
            main = self.spawn(self._main, work)
            while not main.done() and self.failure is None:
                self._step()
                if self.steps > steps_max:
                    raise Stuck(f"not at its end after {steps_max} steps, at {self.now:.3f} s")
            if self.failure is not None:
                raise self.failure
            return main.result()
        finally:
            self.over = True
            asyncio._set_running_loop(None)
            self.close()

    def _step(self) -> None:
        self._move_due_timers()
        lanes = [lane for lane in self._lanes if lane.ready and lane.process.runs]
        if not lanes:
            self._jump()
            return
        lane = lanes[0] if len(lanes) == 1 else self._rng.choice(lanes)
        handle = lane.ready.popleft()
        if not handle._cancelled:
            self.steps += 1
            self.now += STEP_SECONDS
            self.digest = zlib.crc32(f"{lane.name} {self.now}".encode(), self.digest)
            handle._run()

    def _move_due_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now:
            _, _, lane, handle = heapq.heappop(self._timers)
            if handle._cancelled or not lane.process.alive:
                continue
            if lane.process.frozen:
                lane.process.due_while_frozen.append((lane, handle))
            else:
                lane.ready.append(handle)

    def _jump(self) -> None:
        while self._timers:
            when, _, lane, handle = self._timers[0]
            if not handle._cancelled and lane.process.alive:
                self.now = max(self.now, when)
                return
            heapq.heappop(self._timers)
        raise Stuck("everybody waits and no timer is set")
