"""The tasks of the simulation: each ends its own way, and all tell the books where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from holdfast import Abort, Holdfast, Snooze, current, step
from tests.simulation.invariants import Books
from tests.simulation.loop import Process, current_lane

hf = Holdfast(
    "sqlite:///:memory:",
    lease=15,
    heartbeat=4,
    reaper_interval=8,
    grace=3,
    poll_busy=0.5,
    poll_idle=4,
    backoff_base=1,
    backoff_max=8,
    deadline_grace=30,
)


class _Place:
    books: Books
    transactions: dict[Process, Callable[[], AbstractAsyncContextManager[Any]]]
    pause: Callable[[], Awaitable[None]]
    """Inside a transaction: for a while on PostgreSQL, where others go on meanwhile."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Of the process in which the task runs."""
        return self.transactions[current_lane.get().process]()


place = _Place()
"""Of the simulation that runs now; there is one at a time."""


def begin() -> None:
    place.books.begun(current().run_id)
    current().log.info("begun")


def done() -> str:
    current().log.info("done")
    place.books.went_through.add(current().run_id)
    return current().run_id


async def parts(seconds: float) -> None:
    """Work in three parts, with a word about each."""
    for part in range(3):
        await asyncio.sleep(seconds / 3)
        current().progress(part / 3, f"part {part}")
        current().log.info(f"part {part}")
        current().check_cancelled()


@hf.task(backoff=(2.0, 5.0))
async def work(seconds: float) -> str:
    """In one go: what wakes from a long sleep ends at once."""
    begin()
    await asyncio.sleep(seconds)
    return done()


@hf.task(backoff=(3.0,), cancel="immediate")
async def stoppable(seconds: float) -> str:
    begin()
    await parts(seconds)
    return done()


@hf.task(backoff=(2.0, 5.0))
async def flaky(seconds: float, failures: int) -> str:
    begin()
    await parts(seconds)
    if current().attempt <= failures:
        raise RuntimeError("not this time")
    return done()


@hf.task(backoff=(1.0,))
async def hopeless(seconds: float) -> str:
    begin()
    await parts(seconds)
    raise Abort("never")


@hf.task(backoff=(1.0,))
async def sleepy(seconds: float, naps: int) -> str:
    begin()
    await parts(seconds)
    if current().run_no <= naps:
        raise Snooze(4.0)
    return done()


@hf.task(backoff=(2.0,))
async def stepwise(seconds: float) -> str:
    begin()
    for name in ("first", "second"):
        await step(name, asyncio.sleep, seconds / 2)
    return done()


@hf.task(backoff=(2.0,), timeout=20)
async def slow(seconds: float) -> str:
    """Hangs the first time."""
    begin()
    await asyncio.sleep(200.0 if current().run_no == 1 else seconds)
    return done()


@hf.task(max_attempts=1, order_on_failure="block")
async def blocking(seconds: float) -> str:
    begin()
    await asyncio.sleep(seconds)
    if current().run_no == 1:
        raise RuntimeError("somebody has to look at this")
    return done()


@hf.task(backoff=(2.0, 4.0))
async def booked(seconds: float, changes: int) -> str:
    """Completes its job in a transaction, together with a line in its own ledger: both or neither."""
    begin()
    await asyncio.sleep(seconds)
    async with place.transaction() as tx:
        await tx.execute("INSERT INTO ledger (run_id) VALUES ($1)", current().run_id)
        await place.pause()
        await current().complete(done(), tx=tx)
        await place.pause()
        if current().run_no <= changes:
            raise RuntimeError("not like this")
    return "too late to say anything else"
