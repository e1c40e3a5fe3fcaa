"""Jobs and runs as pages show them: what may be seen, and the spans that people look for."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.job import Job, Run, State
from holdfast.store.protocol import CANCELLABLE, RETRYABLE
from holdfast.web.access import visible_job, visible_run
from holdfast.web.dashboard.frame import PageRequest

EXPECTED_SECONDS = 300.0
"""Where a task says nothing."""


class JobRow(msgspec.Struct):
    job: Job[Any]
    status: str
    seconds: float | None
    """How long it ran, or has been running."""
    waits: float | None
    """For how long it has been ready to run."""
    slow: bool
    can_cancel: bool
    can_retry: bool


def row(page: PageRequest, job: Job[Any]) -> JobRow:
    seconds = spent(job.started_at, job.finished_at, page.now) if job.state is not State.QUEUED else None
    waits = spent(job.run_at, None, page.now) if job.status == "queued" else None
    running = job.state is State.RUNNING
    return JobRow(
        job,
        job.status,
        seconds,
        waits,
        slow=running and (seconds or 0.0) > (job.expected_duration or EXPECTED_SECONDS),
        can_cancel=page.may("cancel") and job.state in CANCELLABLE and job.cancel_requested_at is None,
        can_retry=page.may("retry") and job.state in RETRYABLE,
    )


def hidden(page: PageRequest, job: Job[Any]) -> Job[Any]:
    """Without what this caller may not see."""
    shown = visible_job(page.caller, job)
    return msgspec.structs.replace(
        job, args=shown["args"], output=shown["result"], machine_id=shown["machine_id"], locked_by=shown["locked_by"]
    )


class RunRow(msgspec.Struct):
    run: Run
    status: str
    seconds: float | None
    start: float
    """Where its bar begins, as a part of the time from the first run to the last."""
    part: float
    is_shown: bool


def run_rows(page: PageRequest, runs: list[Run], shown_no: int) -> list[RunRow]:
    """Newest first, as they come."""
    begins = [run.started_at for run in runs if run.started_at]
    ends = [run.finished_at or page.now for run in runs if run.started_at]
    first, last = (min(begins), max(ends)) if begins else (page.now, page.now)
    whole = max(0.001, (last - first).total_seconds())
    found = []
    for run in runs:
        plain = visible_run(page.caller, run)
        seen = msgspec.structs.replace(run, worker=plain["worker"], machine_id=plain["machine_id"])
        seconds = spent(run.started_at, run.finished_at, page.now)
        start = (run.started_at - first).total_seconds() / whole if run.started_at else 0.0
        part = min(1.0 - start, (seconds or 0.0) / whole)
        found.append(RunRow(seen, run.outcome, seconds, start, max(0.004, part), run.run_no == shown_no))
    return found


def spent(start: datetime | None, end: datetime | None, now: datetime) -> float | None:
    return None if start is None else max(0.0, ((end or now) - start).total_seconds())
