"""When a failed attempt is tried again."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.finish import retry_delay
from holdfast.options import TaskSpec


def delays(backoff: Any, attempts: Sequence[int]) -> list[float]:
    spec = TaskSpec(name="t", backoff=backoff)
    return [retry_delay(spec, attempt, 5.0, 900.0, random.Random(1)) for attempt in attempts]


def test_listed_waits_repeat_the_last_one() -> None:
    """Attempts beyond the list wait as long as its end says."""
    assert delays((60.0, 300.0), [1, 2, 3, 99]) == [60.0, 300.0, 300.0, 300.0]


def test_a_backoff_function_is_given_the_attempt() -> None:
    """Its answer is the wait."""
    assert delays(lambda attempt: attempt * 2, [1, 3]) == [2.0, 6.0]


@pytest.mark.parametrize(
    "backoff", [lambda attempt: 1 / 0, lambda attempt: -1, lambda attempt: math.nan, lambda attempt: "soon"]
)
def test_a_broken_backoff_function_falls_back_to_the_configured_one(backoff: Callable[[int], Any]) -> None:
    """A bug in it must not lose the job."""
    assert delays(None, [1, 2]) == delays(backoff, [1, 2])


@pytest.mark.parametrize(("attempt", "most"), [(1, 5.0), (2, 10.0), (8, 640.0), (9, 900.0), (5000, 900.0)])
def test_exponential_waits_spread_over_the_whole_range(attempt: int, most: float) -> None:
    """Full jitter: anything from nothing to the doubled base, never above the maximum."""
    rng = random.Random(7)
    waits = [retry_delay(TaskSpec(name="t"), attempt, 5.0, 900.0, rng) for _ in range(500)]
    assert 0 <= min(waits) < most * 0.05
    assert most * 0.95 < max(waits) <= most
