"""A machine's time is divided among the jobs that run on it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import StorageUnavailable
from holdfast.shares import Shares


class Sink:
    def __init__(self) -> None:
        self.away = False
        self.counted: dict[str, tuple[int, float]] = {}

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        if self.away:
            raise StorageUnavailable("away")
        _month, subject, runs, seconds = args
        self.counted[subject] = (runs, seconds)
        return []


class Hand:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_jobs_that_run_together_share_the_time() -> None:
    """Alone a job has all of it, beside another a half; together they have as much as has passed."""
    hand, sink = Hand(), Sink()
    shares = Shares(hand)
    shares.began("a")
    hand.now = 10
    shares.began("b")
    hand.now = 20
    shares.ended("a", "acme")
    hand.now = 50
    shares.ended("b", None)
    hand.now = 90
    await shares.send(sink)
    assert sink.counted == {"tenant:acme": (1, pytest.approx(15)), "tenant:": (1, pytest.approx(35))}


async def test_what_cannot_be_counted_now_is_counted_later() -> None:
    """Nothing is lost while the database is away, and nothing is counted twice."""
    hand, sink = Hand(), Sink()
    shares = Shares(hand)
    sink.away = True
    for tenant in ("a", "b"):
        shares.began(tenant)
        hand.now += 5
        shares.ended(tenant, tenant)
    await shares.send(sink)
    shares.began("c")
    hand.now += 1
    shares.ended("c", "a")
    sink.away = False
    await shares.send(sink)
    assert sink.counted == {"tenant:a": (2, pytest.approx(6)), "tenant:b": (1, pytest.approx(5))}
    sink.counted.clear()
    await shares.send(sink)
    assert sink.counted == {}
