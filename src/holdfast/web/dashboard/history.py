"""The last hour, day or week in columns: from what workers have counted, or of one tenant from its newest jobs."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.app import Holdfast
from holdfast.errors import InvalidOption
from holdfast.stats import percentiles_of
from holdfast.store.protocol import Tally

MINUTES = 60
KINDS = ("completed", "retried", "cancelled", "failed")
"""From the ground up."""
NEWEST_OF_TENANT = 150
ROWS_MAX = 20_000


class Window(msgspec.Struct, frozen=True):
    """How far back a chart goes, and in which steps."""

    name: str
    label: str
    said: str
    columns: int
    minutes: int
    """Of one column."""
    step: str

    def first(self, this_minute: int) -> int:
        """The minute that the oldest column begins with; the newest one has just begun."""
        return (this_minute // self.minutes - self.columns + 1) * self.minutes

    @property
    def titles(self) -> list[str]:
        """Of every column."""
        unit, n = ("min", 1) if self.minutes < 60 else ("h", self.minutes // 60)
        return [f"{n * before} {unit} ago" if before else f"this {self.step}" for before in reversed(range(self.columns))]


WINDOWS = {
    window.name: window
    for window in (
        Window("1h", "1 h", "the last hour", MINUTES, 1, "minute"),
        Window("24h", "24 h", "the last 24 hours", 24, 60, "hour"),
        Window("7d", "7 d", "the last 7 days", 56, 180, "3 hours"),
    )
}
HOUR = WINDOWS["1h"]


def window_named(asked: str) -> Window:
    found = WINDOWS.get(asked or HOUR.name)
    if found is None:
        raise InvalidOption(f"last= is one of {', '.join(WINDOWS)}.")
    return found


class History(msgspec.Struct):
    """Oldest column first, the present one last."""

    window: Window
    ends: list[dict[str, float]]
    wait_p50: list[float | None]
    """Seconds; None where nothing ended."""
    wait_p90: list[float | None]
    run_p50: list[float | None]
    run_p90: list[float | None]
    number: float
    """Ends of jobs: of an hour per minute, over the last five, the present one included; else all of them."""
    partial: bool = False
    """There was more than was looked at."""


async def of_all(hf: Holdfast, window: Window = HOUR) -> History:
    first = window.first(_this_minute(hf))
    columns: dict[int, list[Tally]] = defaultdict(list)
    if window is HOUR:
        counted = [(row["minute"], row) for row in await hf.store.shared("tally_minutes", first)]
    else:
        counted = [(row["hour"] * 60, row) for row in await hf.store.shared("tally_hours", -(first // 60))]
    for minute, row in counted:
        columns[(minute - first) // window.minutes].append(Tally(row["name"], "", row["label"], row["n"]))
    every = range(window.columns)
    ends = [{kind: sum(tally.n for tally in columns[no] if tally.name == kind) for kind in KINDS} for no in every]
    waits = [percentiles_of("wait", columns[no]) for no in every]
    runs = [percentiles_of("run", columns[no]) for no in every]
    return History(
        window,
        ends,
        [each.p50 if each else None for each in waits],
        [each.p90 if each else None for each in waits],
        [each.p50 if each else None for each in runs],
        [each.p90 if each else None for each in runs],
        number=_number(window, ends),
    )


async def of_tenant(hf: Holdfast, tenant: str, window: Window = HOUR) -> History:
    """Workers do not count by tenant: this looks at its newest jobs of each state."""
    now = _now(hf)
    first = window.first(int(now // 60))
    ends: list[dict[str, float]] = [dict.fromkeys(KINDS, 0.0) for _ in range(window.columns)]
    waits: list[list[float]] = [[] for _ in ends]
    runs: list[list[float]] = [[] for _ in ends]
    rows = await hf.store.shared("job_recent_of_tenant", tenant, NEWEST_OF_TENANT)
    for row in rows:
        no = -1 if row["ended"] is None else (int((now - row["ended"]) // 60) - first) // window.minutes
        if 0 <= no < window.columns:
            _add(row, ends[no], waits[no], runs[no])
    partial = NEWEST_OF_TENANT in Counter(row["state"] for row in rows).values()
    return History(
        window,
        ends,
        [_part(values, 0.5) for values in waits],
        [_part(values, 0.9) for values in waits],
        [_part(values, 0.5) for values in runs],
        [_part(values, 0.9) for values in runs],
        number=_number(window, ends),
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


def _add(row: Mapping[str, Any], ends: dict[str, float], waits: list[float], runs: list[float]) -> None:
    ends[row["state"]] += 1
    if row["ran"] is not None:
        waits.append(max(0.0, row["waited"] - row["ran"]))
        runs.append(max(0.0, row["ran"] - row["ended"]))


def _part(values: list[float], part: float) -> float | None:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else None


def _number(window: Window, ends: Sequence[Mapping[str, float]]) -> float:
    counted = ends[-5:] if window is HOUR else ends
    total = sum(column[kind] for column in counted for kind in ("completed", "failed", "cancelled"))
    return total / 5 if window is HOUR else total


def _this_minute(hf: Holdfast) -> int:
    return int(_now(hf) // 60)


def _now(hf: Holdfast) -> float:
    now = hf.clock.now()
    return now.timestamp() if now else time.time()
