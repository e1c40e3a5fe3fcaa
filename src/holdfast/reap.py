"""Step 5 of 6: rescue. Runs whose worker died or hangs go back to the queue, or are given up."""

from __future__ import annotations

import logging

import msgspec

from holdfast.job import State
from holdfast.settings import Settings
from holdfast.store.protocol import Backoff, Reaped, Store

log = logging.getLogger("holdfast")

BATCH = 500
BATCHES_MAX = 20


class ReapReport(msgspec.Struct):
    """Job ids, by what became of them."""

    requeued: list[str] = []
    failed: list[str] = []
    cancelled: list[str] = []
    jobs: list[Reaped] = []

    def __bool__(self) -> bool:
        return bool(self.jobs)


async def reap(store: Store, settings: Settings) -> ReapReport:
    """One pass. Any number may run at once: each job is handled once, and a second pass finds nothing."""
    report = ReapReport()
    backoff = Backoff(settings.backoff_base, settings.backoff_max)
    for _ in range(BATCHES_MAX):
        found = await store.job_reap(backoff=backoff, deadline_grace=settings.deadline_grace, limit=BATCH)
        report.jobs += found
        if len(found) < BATCH:
            break
    by_state = {State.QUEUED: report.requeued, State.FAILED: report.failed, State.CANCELLED: report.cancelled}
    for job in report.jobs:
        by_state[job.state].append(job.id)
    if report:
        log.warning(
            "[RECOVERY] Requeued %d stuck jobs, failed %d exhausted jobs, started 0 machines for orphaned jobs",
            len(report.requeued),
            len(report.failed),
        )
    return report
