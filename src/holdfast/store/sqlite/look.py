"""Reading for people: jobs and their runs. Nothing here writes."""

from __future__ import annotations

from typing import Any

from holdfast.errors import JobNotFound
from holdfast.job import Job, Run, State, current_run_of
from holdfast.store.protocol import Beat, JobFilter
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.session import STATEMENTS, Session

ALIVE_SECONDS = 60.0
UNSERVED_SCAN_MAX = 10_000
_WHERE_STATE = {
    State.QUEUED: "WHERE state = 'queued'",
    State.RUNNING: "INDEXED BY holdfast_jobs_running WHERE state = 'running'",
    State.COMPLETED: "WHERE state = 'completed'",
    State.FAILED: "INDEXED BY holdfast_jobs_failed WHERE state = 'failed'",
    State.CANCELLED: "INDEXED BY holdfast_jobs_finished WHERE state = 'cancelled' AND state IN ('completed', 'cancelled')",
}


def job_or_none(session: Session, job_id: str) -> Job[Any] | None:
    row = session.one("job_get", id=job_id)
    return None if row is None else rows.job_of(row)


def job(session: Session, job_id: str) -> Job[Any]:
    found = job_or_none(session, job_id)
    if found is None:
        raise JobNotFound(f"There is no job {job_id}.")
    return found


def leases(session: Session, worker: str) -> list[Beat]:
    return [Beat(*row) for row in session.all("lease_list", worker=worker)]


def jobs(session: Session, where: JobFilter, cursor: str | None, limit: int) -> list[Job[Any]]:
    sql = STATEMENTS["job_list"]
    if where.state is not None:
        sql = sql.replace("WHERE true /* state */", _WHERE_STATE[where.state])
    values = {
        "cursor": cursor,
        "queue": where.queue,
        "task": where.task,
        "tenant": where.tenant,
        "project": where.project,
        "tag": where.tag,
        "after": where.after and where.after.timestamp(),
        "before": where.before and where.before.timestamp(),
        "limit": limit,
    }
    return [rows.job_of(row) for row in session.execute(sql, values).fetchall()]


def counts(session: Session, cap: int) -> dict[str, int]:
    return {row["state"]: row["n"] for row in session.all("job_counts", cap=cap)}


def unserved(session: Session, older_than: float, limit: int) -> list[tuple[str, str, int]]:
    bounds = {"older_than": older_than, "alive_seconds": ALIVE_SECONDS, "scan": UNSERVED_SCAN_MAX}
    found = session.all("job_unserved_due", **bounds)
    for waiting in session.all("queue_list_waiting"):
        found += session.all("job_unserved", queue=waiting["queue"], **bounds)
    sums: dict[tuple[str, str], int] = {}
    for row in found:
        sums[row["queue"], row["task"]] = sums.get((row["queue"], row["task"]), 0) + row["n"]
    most_first = sorted(sums.items(), key=lambda item: -item[1])
    return [(queue, task, n) for (queue, task), n in most_first[:limit]]


def runs(session: Session, job_id: str) -> list[Run]:
    newest = current_run_of(job(session, job_id))
    older = [rows.run_of(row) for row in session.all("run_list", job_id=job_id)]
    return [newest, *older] if newest else older
