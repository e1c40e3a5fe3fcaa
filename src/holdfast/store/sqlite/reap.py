"""Steps 5 and 6, rescue and forget: runs whose worker has gone silent, and rows that have had their time."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.job import State
from holdfast.store.protocol import Backoff, Reaped, Retention
from holdfast.store.sqlite.finish import end, record, requeue
from holdfast.store.sqlite.session import Session, as_json

_DAY = 86_400.0


def reap(session: Session, backoff: Backoff, deadline_grace: float, limit: int, dead: Sequence[str]) -> list[Reaped]:
    if dead:  # not those that hold jobs: a claim of theirs may still be on its way, and only their row leads to it
        session.run("worker_remove_idle", dead=as_json(dead))
    jobs = session.all("job_reapable", deadline_grace=deadline_grace, limit=limit, dead=as_json(dead))
    return [_reap_one(session, job, backoff) for job in jobs]


def _reap_one(session: Session, job: sqlite3.Row, backoff: Backoff) -> Reaped:
    if job["cancel_requested_at"] is not None:
        state = _give_up_cancelled(session, job)
        session.wake_queue(job["queue"])  # its place is free
    elif job["attempt"] < job["max_attempts"]:
        state = _try_again(session, job, backoff)
    else:
        state = _fail(session, job)
        session.wake_queue(job["queue"])
    return Reaped(
        id=job["id"],
        queue=job["queue"],
        task=job["task"],
        tenant=job["tenant"],
        attempt=job["attempt"],
        state=state,
        reason=job["reason"],
        locked_by=job["locked_by"],
        stage=job["stage"],
    )


def _give_up_cancelled(session: Session, job: sqlite3.Row) -> State:
    end(session, job, State.CANCELLED, attempt=job["attempt"], error_code=None, error_message=None, stage=None)
    _event(session, job, "reaper:cancelled")
    by = job["cancel_requested_by"] or "somebody"
    _log(session, job, "warning", f"Cancelled by {by}; its worker did not answer")
    return State.CANCELLED


def _try_again(session: Session, job: sqlite3.Row, backoff: Backoff) -> State:
    died = job["reason"] == "worker_died"
    requeue(
        session,
        job,
        "lost",
        delay=_delay(job, backoff),
        attempt=job["attempt"],
        error_code=job["reason"],
        error_message="its worker died" if died else "the worker stopped answering",
        stage=None,
    )
    _event(session, job, "reaper:requeued")
    _log(
        session,
        job,
        "warning",
        f"{_noun(job)} attempt {job['attempt']} failed ({'worker died' if died else 'machine unresponsive'})"
        " - automatically retrying...",
    )
    return State.QUEUED


def _fail(session: Session, job: sqlite3.Row) -> State:
    failed = f"{_noun(job)} failed after {job['attempt']} attempts"
    message = f"{failed} (machine crash or timeout)"
    end(session, job, State.FAILED, attempt=job["attempt"], error_code=job["reason"], error_message=message, stage=None)
    _event(session, job, "reaper:failed(timeout)")
    _log(session, job, "error", f"{failed} - machine crashed or timed out. Retry the job once the cause is fixed.")
    return State.FAILED


def _delay(job: sqlite3.Row, backoff: Backoff) -> float:
    if job["reason"] == "worker_died" and not job["lost_before"]:
        return 0.0  # only what loses one worker after another has to wait
    attempt: int = job["attempt"]
    waits: list[float] = msgspec.json.decode(job["backoff"]) if job["backoff"] else []
    if waits:
        return waits[min(attempt, len(waits)) - 1]
    doublings = min(attempt - 1, 60)
    return random.uniform(0, min(backoff.most, backoff.base * 2.0**doublings))


def _noun(job: sqlite3.Row) -> str:
    task: str = job["task"]
    return job["noun"] or task[:1].upper() + task[1:].replace("_", " ")


def _event(session: Session, job: sqlite3.Row, event: str) -> None:
    record(session, job, event, actor="reaper", reason=job["reason"], locked_by=job["locked_by"])


def _log(session: Session, job: sqlite3.Row, level: str, message: str) -> None:
    session.run(
        "log_insert_next",
        run_id=job["run_id"],
        job_id=job["id"],
        tenant=job["tenant"],
        project=job["project"],
        level=level,
        message=message,
    )
    session.wake_log(job["run_id"])


def prune(session: Session, retention: Retention, limit: int) -> dict[str, int]:
    def before(days: float) -> float:
        return session.now - days * _DAY

    old = session.all(
        "job_prunable", finished_before=before(retention.finished), failed_before=before(retention.failed), limit=limit
    )
    lines = session.run("log_prune", before=before(retention.logs), limit=limit)
    ids, run_ids = as_json([row["id"] for row in old]), as_json([row["run_id"] for row in old])
    lines += session.run("log_delete", ids=ids, run_ids=run_ids, limit=limit - lines)
    ids = as_json([row["id"] for row in session.all("job_without_lines", ids=ids)])
    session.run("run_delete", ids=ids)
    session.run("step_delete", ids=ids)
    return {
        "jobs": session.run("job_delete", ids=ids),
        "events": session.run("event_prune", before=before(retention.events), limit=limit),
        "logs": lines,
        "workers": session.run("worker_prune", before=before(retention.workers), limit=limit),
    }
