"""The last hour, minute by minute: from what workers have counted, or of one tenant from its newest jobs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.stats import percentiles_of
from holdfast.store.protocol import Tally

MINUTES = 60
KINDS = ("completed", "retried", "cancelled", "failed")
"""From the ground up."""
NEWEST_OF_TENANT = 500
ROWS_MAX = 20_000


class History(msgspec.Struct):
    """Oldest minute first, this minute last."""

    ends: list[dict[str, float]]
    wait_p50: list[float | None]
    """Seconds; None where nothing ended."""
    wait_p90: list[float | None]
    run_p50: list[float | None]
    run_p90: list[float | None]
    per_minute: float
    """Ends of jobs, over the last five minutes, the present one included."""
    partial: bool = False
    """There was more than was looked at."""


async def of_all(hf: Holdfast) -> History:
    first = _this_minute(hf) - MINUTES + 1
    minutes: dict[int, list[Tally]] = defaultdict(list)
    for row in await hf.store.shared("tally_minutes", first):
        minutes[row["minute"] - first].append(Tally(row["name"], "", row["label"], row["n"]))
    ends = [{kind: sum(tally.n for tally in minutes[no] if tally.name == kind) for kind in KINDS} for no in range(MINUTES)]
    waits = [percentiles_of("wait", minutes[no]) for no in range(MINUTES)]
    runs = [percentiles_of("run", minutes[no]) for no in range(MINUTES)]
    return History(
        ends,
        [each.p50 if each else None for each in waits],
        [each.p90 if each else None for each in waits],
        [each.p50 if each else None for each in runs],
        [each.p90 if each else None for each in runs],
        per_minute=_pace(ends),
    )


async def of_tenant(hf: Holdfast, tenant: str) -> History:
    """Workers do not count by tenant: this looks at its newest jobs of each state."""
    first = _this_minute(hf) - MINUTES + 1
    ends: list[dict[str, float]] = [dict.fromkeys(KINDS, 0.0) for _ in range(MINUTES)]
    waits: list[list[float]] = [[] for _ in range(MINUTES)]
    runs: list[list[float]] = [[] for _ in range(MINUTES)]
    partial = False
    for state in ("completed", "failed", "cancelled"):
        rows = await hf.store.shared("job_recent_of_tenant", tenant, state, NEWEST_OF_TENANT)
        partial |= len(rows) == NEWEST_OF_TENANT
        for row in rows:
            _add(row, state, first, ends, waits, runs)
    return History(
        ends,
        [_part(values, 0.5) for values in waits],
        [_part(values, 0.9) for values in waits],
        [_part(values, 0.5) for values in runs],
        [_part(values, 0.9) for values in runs],
        per_minute=_pace(ends),
        partial=partial,
    )


async def by_queue(hf: Holdfast) -> dict[str, list[float]]:
    """Ends of jobs in each queue."""
    first = _this_minute(hf) - MINUTES + 1
    found: dict[str, list[float]] = {}
    for row in await hf.store.shared("tally_minutes_by_queue", first, ROWS_MAX):
        if 0 <= row["minute"] - first < MINUTES:
            found.setdefault(row["queue"], [0.0] * MINUTES)[row["minute"] - first] += row["n"]
    return found


def _add(
    row: Mapping[str, Any], state: str, first: int, ends: Any, waits: Sequence[list[float]], runs: Sequence[list[float]]
) -> None:
    started, finished = row["started_at"], row["finished_at"]
    if finished is None:
        return
    no = int(finished.timestamp() // 60) - first
    if not 0 <= no < MINUTES:
        return
    ends[no][state] += 1
    if started is not None:
        waits[no].append(max(0.0, (started - row["run_at"]).total_seconds()))
        runs[no].append(max(0.0, (finished - started).total_seconds()))


def _part(values: list[float], part: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else None


def _pace(ends: Sequence[Mapping[str, float]]) -> float:
    return sum(minute[kind] for minute in ends[-5:] for kind in ("completed", "failed", "cancelled")) / 5


def _this_minute(hf: Holdfast) -> int:
    now = hf.clock.now()
    return int((now.timestamp() if now else time.time()) // 60)
