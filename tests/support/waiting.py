"""Waiting for a state: the only place in tests/ that sleeps."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar, overload

import pytest

T = TypeVar("T")

PAUSE_SECONDS = 0.01


@overload
async def until(predicate: Callable[[], Awaitable[T | None]], timeout: float = ...) -> T: ...


@overload
async def until(predicate: Callable[[], T | None], timeout: float = ...) -> T: ...


async def until(predicate: Callable[[], Any], timeout: float = 40) -> Any:
    """Ask again and again until the answer is true, and return it; fail the test after `timeout` seconds."""
    give_up_at = time.monotonic() + timeout
    while True:
        answer = predicate()
        value = await answer if inspect.isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > give_up_at:
            _fail(predicate, timeout, value)
        await asyncio.sleep(PAUSE_SECONDS)


def until_sync(predicate: Callable[[], T | None], timeout: float = 40) -> T:
    """The same for tests without an event loop."""
    give_up_at = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > give_up_at:
            _fail(predicate, timeout, value)
        time.sleep(PAUSE_SECONDS)


def _fail(predicate: Callable[[], object], timeout: float, last: object) -> NoReturn:
    pytest.fail(f"waited {timeout} s in vain for: {_words_of(predicate)}\nthe last answer was {last!r}")


def _words_of(predicate: Callable[[], object]) -> str:
    try:
        return inspect.getsource(predicate).strip()
    except (OSError, TypeError):
        return repr(predicate)
