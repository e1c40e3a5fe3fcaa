"""People act on a job: cancel it, or retry one that has ended."""

from __future__ import annotations

from typing import Any

from holdfast.ids import new_run_id
from holdfast.job import Job, State
from holdfast.store.outcomes import cancel_conflict, retry_conflict
from holdfast.store.sqlite import look
from holdfast.store.sqlite.session import Session


def cancel(session: Session, job_id: str, by: str | None, tenant: str | None = None) -> Job[Any]:
    job = look.job_or_none(session, job_id, tenant)
    if job is None:
        raise cancel_conflict(job_id, "not_found")
    if job.state.ended:
        raise cancel_conflict(job_id, f"already_{job.state.value}")
    if job.cancel_requested_at is not None:
        raise cancel_conflict(job_id, "already_cancelling")
    if job.state is State.RUNNING:
        session.run("job_request_cancel", id=job_id, by=by)
        session.wakes.add(f"cancel:{job_id}")
        _record(session, job, "job.cancel_requested", by)
    else:
        session.run("job_cancel_queued", id=job_id, by=by)
        session.wake_next_in_order(job.tenant, job.order_key)
        _record(session, job, "job.cancelled", by)
    return look.job(session, job_id)


def retry(session: Session, job_id: str, by: str | None, tenant: str | None = None) -> Job[Any]:
    job = look.job_or_none(session, job_id, tenant)
    if job is None:
        raise retry_conflict(job_id, "not_found")
    if not job.state.ended:
        raise retry_conflict(job_id, f"job_{job.state.value}")
    if job.state is State.COMPLETED:
        raise retry_conflict(job_id, "already_completed")
    if job.unique_key is not None and session.one(
        "job_active_with_unique_key", tenant=job.tenant or "", unique_key=job.unique_key
    ):
        raise retry_conflict(job_id, "duplicate_active")
    if job.locked_by is not None:  # else it was cancelled while it waited, and its runs are in the history already
        why = {"error_code": job.error_code, "error_message": job.error_message, "stage": job.stage}
        session.run("run_insert", id=job_id, outcome=job.state.value, **why)
    session.run("job_replay", id=job_id, new_run_id=new_run_id())
    session.wake_queue(job.queue)
    _record(session, job, "job.retried", by)
    return look.job(session, job_id)


def _record(session: Session, job: Job[Any], event: str, by: str | None) -> None:
    session.run("event_insert", job_id=job.id, tenant=job.tenant, type=event, actor=by, data="{}")
