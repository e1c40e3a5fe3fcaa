"""How much is measured, and what a measurement is."""

from __future__ import annotations

from statistics import median

import msgspec


class Plan(msgspec.Struct, frozen=True):
    runs: int = 3
    single_seconds: float = 0.8
    """How long jobs are enqueued one by one."""
    one_call: int = 10_000
    calls: int = 100
    """Batches of 1,000 in a row."""
    backlog: int = 40_000
    latency_jobs: int = 150
    idle_seconds: float = 31.0
    flat_rows: int = 1_000_000
    log_lines: int = 100_000
    follow_lines: int = 10_000
    advisories: int = 200_000
    page: str = ""
    """Only addresses of pages that have this in them."""


QUICK = Plan(
    runs=1,
    single_seconds=0.5,
    calls=20,
    backlog=20_000,
    latency_jobs=75,
    flat_rows=100_000,
    follow_lines=3_000,
    advisories=100_000,
)


class Line(msgspec.Struct, kw_only=True):
    """One line of the table: every sample of ours and, where there is one, of the floor."""

    metric: str
    store: str
    title: str
    unit: str
    ours: list[float]
    floors: dict[str, list[float]] = {}
    """By name; the first is the one to compare with."""
    calibrations: list[float] = []

    @property
    def middle(self) -> float:
        return median(self.ours)

    @property
    def floor(self) -> float | None:
        return median(next(iter(self.floors.values()))) if self.floors else None

    @property
    def ratio(self) -> float | None:
        return self.middle / self.floor if self.floor else None
