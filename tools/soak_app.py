"""The tasks of a soak: most are plain, and some fail, retry, log a lot, run in a thread or are cancelled."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache

from bench.peers.tally import note, opened_by_job
from holdfast import Holdfast, current

hf = Holdfast()

LINES = 20
_file = cache(opened_by_job)


def _started(enqueued_at: float) -> None:
    """How late the first attempt began, for the figures."""
    if current().attempt == 1 and enqueued_at:
        note(_file(), time.time() - enqueued_at)


@hf.task
async def plain(enqueued_at: float) -> str:
    _started(enqueued_at)
    return "done"


@hf.task
def in_thread(enqueued_at: float) -> int:
    _started(enqueued_at)
    return os.getpid()


@hf.task
async def logging(enqueued_at: float) -> None:
    _started(enqueued_at)
    for number in range(LINES):
        current().log.info(f"line {number}")


@hf.task(backoff=(0.1, 0.2), max_attempts=3)
async def at_third_attempt(enqueued_at: float) -> None:
    _started(enqueued_at)
    if current().attempt < 3:
        raise ConnectionError("the other side hung up")


@hf.task(backoff=(0.1,), max_attempts=2)
async def failing(enqueued_at: float) -> None:
    _started(enqueued_at)
    raise ValueError("no such customer")


@hf.task(cancel="immediate")
async def until_cancelled(enqueued_at: float) -> None:
    """Ends by itself, too, should nobody cancel it."""
    _started(enqueued_at)
    await asyncio.sleep(5)
