"""Step 5 of 6: rescue. Runs whose worker died or hangs go back to the queue, or are given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from holdfast.errors import StorageError
from holdfast.job import State
from holdfast.process_identity import is_dead
from holdfast.settings import Settings
from holdfast.stats import orphans_of
from holdfast.store.protocol import Backoff, Reaped, Store, Tally
from holdfast.tally import ALL_QUEUES, MILLISECONDS, Histogram, merged, stage_label

log = logging.getLogger("holdfast")

BATCH = 500
BATCHES_MAX = 20


class ReapReport(msgspec.Struct):
    """Job ids, by what became of them."""

    requeued: list[str] = []
    failed: list[str] = []
    cancelled: list[str] = []
    jobs: list[Reaped] = []
    orphaned_jobs_found: int = 0
    """Waiting for a minute or more, and known to no live worker."""
    machines_started: int = 0
    adopted: list[Any] = []
    """`holdfast.adopt.Rescued`: rows of adopted tables."""

    def __bool__(self) -> bool:
        return bool(self.jobs or self.machines_started)


async def reap(store: Store, settings: Settings, start_machines: Callable[[], Awaitable[int]] | None = None) -> ReapReport:
    """One pass, with `start_machines` also for jobs that nobody serves. Any number may run at once: each job is handled once,
    and a second pass finds nothing."""
    started = time.monotonic()
    report = await _rescued(store, settings, await _dead_workers(store))
    if start_machines is not None:
        report.orphaned_jobs_found = sum((await orphans_of(store)).values())
        report.machines_started = await start_machines()
    await _record(store, report, started)
    return report


async def reap_dead(store: Store, settings: Settings, gone_machines: Collection[str] = ()) -> ReapReport:
    """Only if a worker has died for certain: its process has ended on this host, or its machine is gone."""
    started = time.monotonic()
    dead = await _dead_workers(store, gone_machines)
    if not dead:
        return ReapReport()
    report = await _rescued(store, settings, dead)
    await _record(store, report, started)
    return report


async def _dead_workers(store: Store, gone_machines: Collection[str] = ()) -> list[str]:
    return [row.id for row in await store.worker_list() if row.machine_id in gone_machines or is_dead(row.process)]


async def _rescued(store: Store, settings: Settings, dead: list[str]) -> ReapReport:
    report = ReapReport()
    backoff = Backoff(settings.backoff_base, settings.backoff_max)
    for _ in range(BATCHES_MAX):
        found = await store.job_reap(backoff=backoff, deadline_grace=settings.deadline_grace, limit=BATCH, dead=dead)
        report.jobs += found
        if len(found) < BATCH:
            break
    by_state = {State.QUEUED: report.requeued, State.FAILED: report.failed, State.CANCELLED: report.cancelled}
    for job in report.jobs:
        by_state[job.state].append(job.id)
    return report


async def _record(store: Store, report: ReapReport, started: float) -> None:
    if report:
        log.warning(
            "[RECOVERY] Requeued %d stuck jobs, failed %d exhausted jobs, started %d machines for orphaned jobs",
            len(report.requeued),
            len(report.failed),
            report.machines_started,
        )
    await _tally(store, report, (time.monotonic() - started) * 1000)


async def _tally(store: Store, report: ReapReport, milliseconds: float) -> None:
    names = {State.QUEUED: "reaper_requeued", State.FAILED: "reaper_failed", State.CANCELLED: "reaper_cancelled"}
    counts = [Tally(names[job.state], job.queue, stage_label(job.stage), 1) for job in report.jobs]
    scan = Histogram(MILLISECONDS)
    scan.observe(milliseconds)
    try:
        await store.tally_add(merged([*counts, *scan.tallies("reaper_scan", ALL_QUEUES, "leases")]))
    except StorageError as error:
        log.warning("What the reaper did was not counted: %s", error)
