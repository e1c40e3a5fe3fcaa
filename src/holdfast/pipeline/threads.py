"""Blocking work beside an event loop, in a thread of its own that is never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

from holdfast.thread_starts import start

T = TypeVar("T")


async def in_own_thread(work: Callable[[], T], *, when_cancelled: Callable[[], None] | None = None) -> T:
    """The loop's own pool has few threads and a tool may take hours; a cancelled caller still waits for the end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def deliver() -> None:
        try:
            value = work()
        except BaseException as error:
            _tell(loop, done.set_exception, error)
        else:
            _tell(loop, done.set_result, value)

    start(threading.Thread(target=contextvars.copy_context().run, args=(deliver,), name="holdfast pipeline"))
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelled = error
            if when_cancelled is not None:
                when_cancelled()
    if cancelled is not None:
        done.exception()  # looked at, or asyncio complains
        raise cancelled
    return done.result()


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], outcome: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is gone
        loop.call_soon_threadsafe(settle, outcome)
