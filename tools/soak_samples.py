"""What a soak records every ten seconds, as rows of a CSV, and whether it stayed flat."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

Sample = dict[str, float]


class Bound(NamedTuple):
    """A later quarter may be so many times as high as an earlier one, and so much higher besides."""

    times: float
    more: float


BOUNDS = {
    "rss_mb": Bound(1.1, 4),
    "files": Bound(1.0, 12),
    "threads": Bound(1.0, 12),
    "dead_rows": Bound(1.5, 3000),
    "store_mb": Bound(1.25, 4),
    "waiting": Bound(1.5, 50),
    "p50_ms": Bound(1.5, 20),
    "p99_ms": Bound(2.0, 200),
}
"""By the end of a column's name. Latency has the most room: it is measured beside whatever else the machine does."""


class Verdict(NamedTuple):
    name: str
    second: float
    last: float
    flat: bool

    def row(self) -> str:
        return f"| {self.name} | {self.second:,.1f} | {self.last:,.1f} | {'flat' if self.flat else 'GROWS'} |"


def verdicts(samples: Sequence[Sample]) -> list[Verdict]:
    """The median of the last quarter against that of the second: the first one is for warming up."""
    quarter = len(samples) // 4
    if not quarter:
        raise ValueError("A soak needs at least four samples to be judged; let it run for longer.")
    found = []
    for name in samples[0]:
        bound = next((bound for end, bound in BOUNDS.items() if name.endswith(end)), None)
        if bound is not None:
            second = statistics.median(one[name] for one in samples[quarter : 2 * quarter])
            last = statistics.median(one[name] for one in samples[-quarter:])
            found.append(Verdict(name, second, last, last <= second * bound.times + bound.more))
    return found


def quantile(ascending: Sequence[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))] if ascending else 0.0


class Book:
    """One row for each sample, on disk at once: a soak that is broken off keeps what it saw."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        with self._path.open("w" if len(self.samples) == 1 else "a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.samples[0]))
            if len(self.samples) == 1:
                writer.writeheader()
            writer.writerow({name: f"{value:g}" if abs(value) < 1e5 else f"{value:.0f}" for name, value in sample.items()})
