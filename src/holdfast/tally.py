"""Counters of a process that others can read: gathered in memory, now and then added to those in the database.

Workers open no port, so nobody can scrape them. A job costs a few additions here and nothing in the database.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from holdfast.errors import StorageError
from holdfast.store.protocol import Tally

SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0)
MILLISECONDS = (1.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 30_000.0)
SUM = "sum"
ALL_QUEUES = "all"
"""In place of a queue, for what is not of one."""
STAGE_CHARS_MAX = 40

OUTCOMES = ("completed", "failed", "cancelled", "retried", "snoozed", "released")
HISTOGRAMS: dict[str, Sequence[float]] = {
    "wait": SECONDS,
    "run": SECONDS,
    "first_line": SECONDS,
    "reaper_scan": MILLISECONDS,
}
"""Name -> upper bounds of its buckets; one more bucket holds what is above all of them."""
COUNTERS = (*OUTCOMES, "claimed", "reaper_requeued", "reaper_failed", "reaper_cancelled")


class Sink(Protocol):
    async def tally_add(self, tallies: Sequence[Tally]) -> None: ...


class Histogram:
    __slots__ = ("_bounds", "buckets", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        value = max(0.0, value)
        self.buckets[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def tallies(self, name: str, queue: str, stage: str = "") -> list[Tally]:
        """A label is `stage|bucket`: the bucket's upper bound, or `sum`."""
        labels = [*map(str, self._bounds), "+Inf"]
        found = [Tally(name, queue, f"{stage}|{label}", n) for label, n in zip(labels, self.buckets, strict=True) if n]
        return [*found, Tally(name, queue, f"{stage}|{SUM}", self.sum)] if found else []


class QueueTally:
    """What a worker counts of one queue."""

    __slots__ = ("claimed", "first_line", "outcomes", "run", "wait")

    def __init__(self) -> None:
        self.claimed = 0
        self.outcomes = dict.fromkeys(OUTCOMES, 0)
        self.wait = Histogram(SECONDS)
        self.run = Histogram(SECONDS)
        self.first_line = Histogram(SECONDS)

    def tallies(self, queue: str) -> list[Tally]:
        counts = [Tally(name, queue, "", n) for name, n in [*self.outcomes.items(), ("claimed", self.claimed)] if n]
        histograms = (("wait", self.wait), ("run", self.run), ("first_line", self.first_line))
        return [*counts, *(tally for name, histogram in histograms for tally in histogram.tallies(name, queue))]


class Tallies:
    """Of one process. Not for several threads."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueTally] = {}
        self._unsent: list[Tally] = []

    def of(self, queue: str) -> QueueTally:
        found = self._queues.get(queue)
        if found is None:
            found = self._queues[queue] = QueueTally()
        return found

    def claimed(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self.of(queue).claimed += 1

    def ended(self, queue: str, outcome: str, waited: float, seconds: float, first_line: float | None = None) -> None:
        """`first_line`: seconds from when the job could have run until its first line of log."""
        tally = self.of(queue)
        tally.outcomes[outcome] += 1
        tally.wait.observe(waited)
        tally.run.observe(seconds)
        if first_line is not None:
            tally.first_line.observe(first_line)

    async def send(self, sink: Sink) -> None:
        """What could not be sent goes with the next: counting never disturbs the work."""
        queues, self._queues = self._queues, {}
        tallies = self._unsent + [tally for name, queue in queues.items() for tally in queue.tallies(name)]
        if not tallies:
            return
        tallies, self._unsent = merged(tallies), []
        try:
            await sink.tally_add(tallies)
        except StorageError:
            self._unsent = tallies


def merged(tallies: Iterable[Tally]) -> list[Tally]:
    """One of each key, in one order everywhere, so that two processes that add at once cannot wait for each other."""
    sums: dict[tuple[str, str, str], float] = {}
    for tally in tallies:
        key = (tally.queue, tally.name, tally.label)
        sums[key] = sums.get(key, 0) + tally.n
    return [Tally(name, queue, label, n) for (queue, name, label), n in sorted(sums.items())]


def stage_label(stage: str | None) -> str:
    """Stages are whatever a task calls them; a label is short and has no separator in it."""
    return (stage or "").replace("|", "/")[:STAGE_CHARS_MAX]
