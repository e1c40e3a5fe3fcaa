"""Reading for people: jobs and their runs. Nothing here writes."""

from __future__ import annotations

from typing import Any

from holdfast.errors import JobNotFound
from holdfast.job import Job, Run, current_run_of
from holdfast.store.protocol import Beat
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.session import Session

ALIVE_SECONDS = 60.0
UNSERVED_SCAN_MIN = 100
"""Of one queue, however many there are."""


def job_or_none(session: Session, job_id: str, tenant: str | None = None) -> Job[Any] | None:
    row = session.one("job_get", id=job_id, tenant=tenant)
    return None if row is None else rows.job_of(row)


def job(session: Session, job_id: str, tenant: str | None = None) -> Job[Any]:
    found = job_or_none(session, job_id, tenant)
    if found is None:
        raise JobNotFound(f"There is no job {job_id}.")
    return found


def leases(session: Session, worker: str) -> list[Beat]:
    return [Beat(*row) for row in session.all("lease_list", worker=worker)]


def unserved(session: Session, older_than: float, limit: int, look_at: int) -> list[tuple[str, str, int]]:
    queues = session.all("queue_list_waiting")
    scan = max(UNSERVED_SCAN_MIN, look_at // (1 + len(queues)))
    bounds = {"older_than": older_than, "alive_seconds": ALIVE_SECONDS, "scan": scan}
    found = session.all("job_unserved_due", **bounds)
    for waiting in queues:
        found += session.all("job_unserved", queue=waiting["queue"], **bounds)
    sums: dict[tuple[str, str], int] = {}
    for row in found:
        sums[row["queue"], row["task"]] = sums.get((row["queue"], row["task"]), 0) + row["n"]
    most_first = sorted(sums.items(), key=lambda item: -item[1])
    return [(queue, task, n) for (queue, task), n in most_first[:limit]]


def runs(session: Session, job_id: str, tenant: str | None = None) -> list[Run]:
    newest = current_run_of(job(session, job_id, tenant))
    older = [rows.run_of(row) for row in session.all("run_list", job_id=job_id)]
    return [newest, *older] if newest else older
