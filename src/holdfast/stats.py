"""How the queues are doing: what waits and runs, how fast, and what needs attention. Of each queue and state at most
COUNT_CAP jobs are looked at, so that the cost has a bound, whatever there is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.settings import Settings
from holdfast.store.protocol import QueueLoad, Store, Tally
from holdfast.tally import HISTOGRAMS, SUM

COUNT_CAP = 10_000
SHORT_MINUTES, LONG_MINUTES = 5, 60
ORPHANED_AFTER_SECONDS = 60.0
ORPHANED_KINDS_MAX = 200
ENDS = ("completed", "failed", "cancelled")


class Percentiles(msgspec.Struct):
    """Seconds, read off a histogram: right to within a bucket."""

    p50: float
    p90: float
    p99: float


class QueueStats(msgspec.Struct, kw_only=True):
    load: QueueLoad
    orphaned: int = 0
    """Waiting for a minute or more and known to no live worker."""
    finished_per_minute_5m: float | None = None
    finished_per_minute_60m: float | None = None
    wait: Percentiles | None = None
    """Of the runs that ended within the last hour; None where there were none, or where only one tenant was asked for."""
    run: Percentiles | None = None


class Stats(msgspec.Struct, kw_only=True):
    counts: dict[str, int]
    """By state, each counted to `count_cap` at the most; the completed ones of all tenants, on PostgreSQL, among as many of the
    oldest jobs."""
    count_cap: int
    stuck: int
    slow: int
    orphaned: int
    oldest_wait_seconds: float | None
    queues: dict[str, QueueStats]


async def stats_of(store: Store, settings: Settings, tenant: str | None = None, *, look_at: int = COUNT_CAP) -> Stats:
    """`tenant`: its own jobs only. Throughput and percentiles are not kept by tenant and then missing, as are orphans.
    `look_at`: of how many jobs the rows are read, for what no index tells: what is stuck, slow or orphaned."""
    counts = await store.job_counts(COUNT_CAP, tenant=tenant)
    loads = await store.queue_stats(tenant=tenant, deadline_grace=settings.deadline_grace, cap=COUNT_CAP, look_at=look_at)
    queues = {load.queue: QueueStats(load=load) for load in loads}
    if tenant is None:
        await _add_orphans(store, queues, look_at)
        await _add_pace(store, queues)
    waits = [load.oldest_wait_seconds for load in loads if load.oldest_wait_seconds is not None]
    return Stats(
        counts=counts,
        count_cap=COUNT_CAP,
        stuck=sum(load.stuck for load in loads),
        slow=sum(load.slow for load in loads),
        orphaned=sum(queue.orphaned for queue in queues.values()),
        oldest_wait_seconds=max(waits, default=None),
        queues=dict(sorted(queues.items())),
    )


async def orphans_of(store: Store, look_at: int = COUNT_CAP) -> dict[str, int]:
    """Queue -> how many of its jobs wait for a worker that is not there."""
    found: dict[str, int] = {}
    for queue, _task, n in await store.job_unserved(ORPHANED_AFTER_SECONDS, ORPHANED_KINDS_MAX, look_at=look_at):
        found[queue] = found.get(queue, 0) + n
    return found


async def _add_orphans(store: Store, queues: dict[str, QueueStats], look_at: int) -> None:
    for queue, n in (await orphans_of(store, look_at)).items():
        _queue(queues, queue).orphaned = n


async def _add_pace(store: Store, queues: dict[str, QueueStats]) -> None:
    seconds, tallies = await store.tally_recent(SHORT_MINUTES)
    for queue, n in _finished(tallies).items():
        _queue(queues, queue).finished_per_minute_5m = n / seconds * 60
    seconds, tallies = await store.tally_recent(LONG_MINUTES)
    for queue, n in _finished(tallies).items():
        _queue(queues, queue).finished_per_minute_60m = n / seconds * 60
    for queue in {tally.queue for tally in tallies if tally.name == "wait"}:
        _queue(queues, queue).wait = percentiles_of("wait", (tally for tally in tallies if tally.queue == queue))
        _queue(queues, queue).run = percentiles_of("run", (tally for tally in tallies if tally.queue == queue))


def _queue(queues: dict[str, QueueStats], name: str) -> QueueStats:
    return queues.setdefault(name, QueueStats(load=QueueLoad(queue=name)))


def _finished(tallies: Iterable[Tally]) -> dict[str, float]:
    found: dict[str, float] = {}
    for tally in tallies:
        if tally.name in ENDS:
            found[tally.queue] = found.get(tally.queue, 0) + tally.n
    return found


def buckets_of(name: str, tallies: Iterable[Tally]) -> list[float]:
    """How many fell into each bucket of a histogram, the last one for what is above all bounds."""
    labels = [*map(str, HISTOGRAMS[name]), "+Inf"]
    counts = dict.fromkeys(labels, 0.0)
    for tally in tallies:
        bucket = tally.label.rpartition("|")[2]
        if tally.name == name and bucket != SUM and bucket in counts:
            counts[bucket] += tally.n
    return list(counts.values())


def percentiles_of(name: str, tallies: Iterable[Tally]) -> Percentiles | None:
    buckets = buckets_of(name, tallies)
    if not sum(buckets):
        return None
    return Percentiles(*(_percentile(HISTOGRAMS[name], buckets, part) for part in (0.5, 0.9, 0.99)))


def _percentile(bounds: Sequence[float], buckets: Sequence[float], part: float) -> float:
    """Straight between the bounds of the bucket it falls into; above all bounds it is the highest."""
    wanted, before, lower = sum(buckets) * part, 0.0, 0.0
    for upper, n in zip(bounds, buckets, strict=False):
        if n and before + n >= wanted:
            return lower + (upper - lower) * (wanted - before) / n
        before, lower = before + n, upper
    return bounds[-1]
