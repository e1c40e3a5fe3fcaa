"""What is asked before a run of a task with `needs`, `budget` or `rate`, and what is told afterwards."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from holdfast.errors import Snooze, StorageUnavailable
from holdfast.finish import RATE_LIMIT, Refused, Waits
from holdfast.limits.breaker import Entry, Verdict

if TYPE_CHECKING:
    from holdfast.run import Attempt

STORAGE_AWAY_SECONDS = 5.0
RESERVED_SECONDS = 5.0
"""Others have reserved what is left: they may need less than that."""
TURN_SPREAD_SECONDS = 60.0
"""Held jobs come back within a minute of the month's turn, not all at once."""


async def ask(attempt: Attempt) -> None:
    """The breaker first, which costs nothing while all is well; the rate limit last, because what it takes is gone."""
    spec, platform = attempt.task.spec, attempt.host.platform
    try:
        if spec.needs is not None:
            attempt.entry = await platform.breakers.enter(spec.needs, attempt.claimed.run_id)
        if spec.budget is not None:
            await _ask_budget(attempt, spec.budget, spec.budget_max or 0.0)
        if spec.rate is not None:
            await _ask_rate_limit(attempt, spec.rate)
    except StorageUnavailable:
        raise Snooze(STORAGE_AWAY_SECONDS) from None  # nobody knows whether it may run, and that is not the job's fault


async def _ask_budget(attempt: Attempt, kind: str, most: float) -> None:
    refusal = await attempt.host.platform.budgets.reserve(attempt.claimed, kind, most)
    if refusal is None:
        return
    if not refusal.used_up:
        raise Waits(refusal.message, "budget_reserved", RESERVED_SECONDS * (0.2 + 0.8 * random.random()))
    if attempt.task.spec.on_budget == "hold":
        attempt.log("info", f"{refusal.message} - waiting")
        raise Waits(refusal.message, "budget_exhausted", refusal.seconds + TURN_SPREAD_SECONDS * random.random())
    raise Refused(refusal.message, "budget_exhausted")


async def _ask_rate_limit(attempt: Attempt, name: str) -> None:
    taken = await attempt.host.platform.rate.take_for_job(name, attempt.claimed.id)
    if taken is not None and not taken.allowed:
        waits = attempt.task.spec.on_rate_limited == "wait"
        whom = f"the {taken.kind}" if taken.kind != "total" else "everybody"
        told = f"The rate limit {name} ({taken.limit} for {whom}) is used up"
        for_how_long = f" for another {taken.retry_after:.0f} s"
        attempt.log("info" if waits else "warning", f"{told}{for_how_long}{' - waiting' if waits else ''}")
        if waits:
            raise Waits(f"{told}.", RATE_LIMIT, taken.retry_after)
        taken.require()


def judge(attempt: Attempt, entry: Entry, error: BaseException | None) -> None:
    """What this end tells of the service. A run that takes too long does: the service may not answer at all. One that was
    cancelled, released or lost does not."""
    from holdfast.run import HandedOver

    if isinstance(error, asyncio.CancelledError) and attempt.interrupted == "deadline":
        attempt.verdict = (Verdict.FAILS, "the run took longer than it may take")
    elif isinstance(error, HandedOver):  # the process of an isolated task has seen the exception itself
        attempt.verdict = (Verdict.UNKNOWN if error.blamed is None else Verdict.FAILS, error.blamed)
    else:
        attempt.verdict = attempt.host.platform.breakers.verdict_of(entry.name, error, attempt.task.spec.permanent)
