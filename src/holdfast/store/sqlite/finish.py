"""Step 4, what a run says about its job. Every statement names the run id: a lost lease changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.ids import new_job_id, new_run_id
from holdfast.job import Failure, State
from holdfast.store.protocol import Beat, CallerStatement, Completion, Departure, Held, Leaving, NewJob
from holdfast.store.sqlite import insert
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json

_REQUEUED = {
    Leaving.RETRY: ("failed", "job.retrying"),
    Leaving.SNOOZE: ("snoozed", "job.snoozed"),
    Leaving.RELEASE: ("released", "job.released"),
}
"""How a run that goes back to the queue is called in the history and in its event."""


def extend_leases(session: Session, beats: Sequence[Beat]) -> list[Held]:
    rows = session.all("lease_extend", beats=as_json(beats))
    return [Held(row[0], row[1], bool(row[2]), row[3]) for row in rows]


def complete(session: Session, completions: Sequence[Completion]) -> set[str]:
    done = session.all("job_complete", completions=as_json(completions))
    for tenant, order_key in {(row["tenant"], row["order_key"]) for row in done}:
        session.wake_next_in_order(tenant, order_key)
    return {row["run_id"] for row in done}


def complete_statement(completion: Completion, now: float) -> CallerStatement:
    what = {"id": completion.id, "run_id": completion.run_id, "result": completion.result, "now": now}
    return CallerStatement(STATEMENTS["job_complete_one"], as_json([what]))


def leave(session: Session, departures: Sequence[Departure]) -> dict[str, State]:
    left = {}
    for departure in departures:
        job = session.one("job_leased", id=departure.id, run_id=departure.run_id)
        if job is not None:
            left[departure.run_id] = _leave_one(session, job, departure)
    return left


def _leave_one(session: Session, job: sqlite3.Row, departure: Departure) -> State:
    refunded = departure.how in (Leaving.SNOOZE, Leaving.RELEASE) or not departure.keep_attempt
    attempt = job["attempt"] - refunded
    why = {"error_code": departure.error_code, "error_message": departure.error_message, "stage": departure.stage}
    told = {"error_code": departure.error_code, "error_message": departure.error_message}
    if job["cancel_requested_at"] is not None or departure.how is Leaving.CANCEL:
        end(session, job, State.CANCELLED, attempt=job["attempt"], **why)
        record(session, job, "job.cancelled", actor=job["cancel_requested_by"], **told)
        return State.CANCELLED
    if departure.how is Leaving.FAIL:
        end(session, job, State.FAILED, attempt=attempt, **why)
        record(session, job, "job.failed", **told)
        return State.FAILED
    outcome, event = _REQUEUED[departure.how]
    requeue(session, job, outcome, delay=departure.delay, attempt=attempt, **why)
    record(session, job, event, **told, delay=departure.delay or None)
    return State.QUEUED


def end(session: Session, job: sqlite3.Row, state: State, **values: Any) -> None:
    session.run("job_end", id=job["id"], run_id=job["run_id"], state=state.value, **values)
    if state is State.FAILED and job["on_failed"] is not None:
        _make_follow_up(session, job, values)
    session.wake_next_in_order(job["tenant"], job["order_key"])


def _make_follow_up(session: Session, job: sqlite3.Row, values: dict[str, Any]) -> None:
    """It has no follow-up of its own: a failing hook must not call itself."""
    known: dict[str, Any] = msgspec.json.decode(job["on_failed"])
    argument = known.pop("argument")
    failure = Failure(
        job_id=job["id"],
        task=job["task"],
        queue=job["queue"],
        tenant=job["tenant"],
        project=job["project"],
        attempts=job["attempt"],
        error_code=values["error_code"],
        error_message=values["error_message"],
    )
    args = msgspec.Raw(msgspec.json.encode({argument: failure}))
    known |= {"id": new_job_id(), "run_id": new_run_id(), "enqueued_by": f"on_failed:{job['id']}"}
    insert.insert(session, [NewJob(**known, args=args, tenant=job["tenant"], project=job["project"])])


def requeue(
    session: Session,
    job: sqlite3.Row,
    outcome: str,
    *,
    delay: float,
    attempt: int,
    error_code: str | None,
    error_message: str | None,
    stage: str | None,
) -> None:
    why = {"error_code": error_code, "error_message": error_message, "stage": stage}
    session.run("run_insert", id=job["id"], outcome=outcome, **why)
    session.run("job_requeue", id=job["id"], run_id=job["run_id"], new_run_id=new_run_id(), delay=delay, attempt=attempt, **why)
    session.wake_queue(job["queue"])
    session.wake_next_in_order(job["tenant"], job["order_key"])


def record(session: Session, job: sqlite3.Row, event: str, *, actor: str | None = None, **data: Any) -> None:
    known = {"run_no": job["run_no"], "attempt": job["attempt"], **data}
    said = {name: value for name, value in known.items() if value is not None}
    session.run("event_insert", job_id=job["id"], tenant=job["tenant"], type=event, actor=actor, data=as_json(said))
