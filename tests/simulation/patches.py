"""Everything that would make two runs of one seed differ, replaced while a simulation runs: clocks, chance, threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from holdfast import finish, ids, reap
from holdfast.clock import DatabaseClock
from holdfast.processes import worker
from holdfast.processes.heart import Heart
from holdfast.runlog import logs
from holdfast.runlog.desk import RunBuffer
from holdfast.runlog.logs import STUCK_SECONDS, RunLogs
from holdfast.runlog.writer import LogWriter
from holdfast.store.sqlite import store as sqlite_store
from tests.simulation.loop import SimulatedLoop, current_lane

BEGINNING = datetime(2030, 1, 1, tzinfo=UTC)


class SimulatedClock(DatabaseClock):
    """The database's clock: the loop's."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return BEGINNING + timedelta(seconds=self._loop.now)


class HeartBeside(Heart):
    """In a lane of its own instead of a thread of its own."""

    def start(self) -> None:
        loop = _loop()
        here = current_lane.get()
        self._beating = loop.spawn(loop.lane(f"{here.process.name} heart", here.process), self._beat_until_stopped())

    async def stopped(self) -> None:
        await asyncio.wait({self._beating}, timeout=5.0)


class LogWriterBeside(LogWriter):
    def __init__(self, *parts: Any) -> None:
        with mock.patch.object(asyncio, "new_event_loop", _loop):
            super().__init__(*parts)

    def start(self) -> None:
        loop = _loop()
        here = current_lane.get()
        self.writing = loop.spawn(loop.lane(f"{here.process.name} log", here.process), self._write_until_stopped())


class RunLogsBeside(RunLogs):
    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._desk.closing = InOrder()  # type: ignore[assignment]

    async def stop(self) -> None:
        self._stopped = True
        if isinstance(self._writer, LogWriterBeside):
            self._writer.stop()
            await asyncio.wait({self._writer.writing}, timeout=STUCK_SECONDS)


class InOrder(dict[RunBuffer, None]):
    """A set that is walked in the order of arrival."""

    def add(self, buffer: RunBuffer) -> None:
        self[buffer] = None

    def discard(self, buffer: RunBuffer) -> None:
        self.pop(buffer, None)


def _loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


dead_processes: set[str] = set()
"""By name."""
MISTAKEN = 0.002
"""How often a process that runs is taken for dead: the fence must bear that."""


_is_real = False


@contextlib.contextmanager
def real_time() -> Iterator[None]:
    """For a look at the world outside."""
    global _is_real
    _is_real = True
    try:
        yield
    finally:
        _is_real = False


@contextlib.contextmanager
def replaced(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """For the time of one run."""
    chance = random.Random(f"bytes {seed}")

    def unless_real(ours: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (real if _is_real else ours)(*args)

    def wall() -> float:
        lane = current_lane.get(None)
        return BEGINNING.timestamp() + loop.now + (lane.process.skew if lane is not None else 0.0)

    def is_dead(identity: str | None) -> bool:
        return identity in dead_processes or chance.random() < MISTAKEN

    dead_processes.clear()
    state = random.getstate()
    with contextlib.ExitStack() as stack:
        for target, name, ours in (
            (time, "monotonic", lambda: loop.now),
            (time, "time", wall),
            (time, "time_ns", lambda: int(wall() * 1e9)),
            (os, "urandom", chance.randbytes),
        ):
            stack.enter_context(mock.patch.object(target, name, unless_real(ours, getattr(target, name))))
        for module, name, put in (
            (worker, "Heart", HeartBeside),
            (worker, "RunLogs", RunLogsBeside),
            (logs, "LogWriter", LogWriterBeside),
            (ids, "_last", 0),
            (reap, "is_dead", is_dead),
            (sqlite_store, "is_dead", is_dead),
        ):
            stack.enter_context(mock.patch.object(module, name, put))
        stack.callback(random.setstate, state)
        random.seed(seed)
        finish._rng.seed(seed)
        yield
