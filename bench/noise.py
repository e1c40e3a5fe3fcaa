"""How quiet the machine is: a fixed piece of work timed beside every sample, so that a disturbed one can be told."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Awaitable, Callable

Sample = Callable[[], Awaitable[float]]

_LOOP_TURNS = 300_000
_SYNCS = 40


def loop_milliseconds() -> float:
    started = time.perf_counter()
    total = 0
    for number in range(_LOOP_TURNS):
        total += number
    return (time.perf_counter() - started) * 1000


def fdatasync_milliseconds() -> float:
    """The median of a few small synced writes: the floor under every commit."""
    taken = []
    with tempfile.TemporaryFile() as file:
        for _ in range(_SYNCS):
            started = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)[_SYNCS // 2]


async def alternate(runs: int, *samples: Sample) -> tuple[list[list[float]], list[float]]:
    """Take all samples in turn, `runs` times, so that a drift of the machine meets all of them. Also: the calibrations."""
    found: list[list[float]] = [[] for _ in samples]
    calibrations = []
    for _ in range(runs):
        for values, sample in zip(found, samples, strict=True):
            calibrations.append(loop_milliseconds())
            values.append(await sample())
    return found, calibrations
