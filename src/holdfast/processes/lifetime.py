"""How long a worker lives, and what that costs the runs it cuts off."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.finish import lifetime_over, release_of
from holdfast.run import Attempt, Interrupt
from holdfast.store.protocol import Departure
from holdfast.task import Task

log = logging.getLogger("holdfast")


class Lifetime:
    def __init__(self, seconds: float | None, grace: float) -> None:
        self._seconds = seconds
        self._grace = grace
        self._began = time.monotonic()
        self._over = False

    def begin(self, tasks: Iterable[Task[..., Any]], stop: Callable[[str], None]) -> None:
        if self._seconds is None:
            return
        self._began = time.monotonic()
        # What runs then has the grace period before the time is over.
        asyncio.get_running_loop().call_later(max(0.0, self._seconds - self._grace), stop, "lifetime")
        needed = {task.name: task.spec.timeout + self._grace for task in tasks if task.spec.timeout is not None}
        too_long = sorted(name for name, seconds in needed.items() if seconds > self._seconds)
        if too_long:
            log.warning(
                "Runs of %s may take longer than this worker lives (%g s), are cut off then, and cost an attempt. "
                "Raise max_lifetime to %g s, or lower their timeout.",
                ", ".join(too_long),
                self._seconds,
                max(needed.values()),
            )

    def end(self) -> None:
        """From now on what is given back is given back because this worker's time is over."""
        self._over = True

    def interrupt(self, attempt: Attempt) -> None:
        attempt.interrupt(Interrupt.LIFETIME if self._costs_an_attempt(attempt) else Interrupt.RELEASE)

    def departure(self, attempt: Attempt) -> Departure:
        """Of a run that did not stop when it was interrupted."""
        if not self._costs_an_attempt(attempt):
            return release_of(attempt.claimed)
        return lifetime_over(attempt.claimed, attempt.elapsed)[1]

    def _costs_an_attempt(self, attempt: Attempt) -> bool:
        """Else a job that takes longer than its workers live would run again and again without end. It is free for a run that
        began in the second half of this life; but no more often than a job may be tried, for it may meet old workers only."""
        if not self._over or self._seconds is None:
            return False
        claimed = attempt.claimed
        had_its_share = attempt.started - self._began <= self._seconds / 2
        return had_its_share or claimed.run_no - claimed.attempt >= claimed.max_attempts
