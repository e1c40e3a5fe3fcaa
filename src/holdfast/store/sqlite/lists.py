"""Lists of jobs, and what is done to all that match."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.job import Job, State
from holdfast.store.protocol import CANCELLABLE, RETRYABLE, Acted, Glance, JobFilter
from holdfast.store.sqlite import rows, steer
from holdfast.store.sqlite.session import STATEMENTS, Session

_OF_TENANT = "INDEXED BY holdfast_jobs_tenant WHERE tenant = :tenant AND state = '{}'"
_OF_BATCH = "INDEXED BY holdfast_jobs_batch WHERE batch = :batch"
_OF_ALL = {
    State.QUEUED: "WHERE state = 'queued'",
    State.RUNNING: "INDEXED BY holdfast_jobs_running WHERE state = 'running'",
    State.COMPLETED: "WHERE state = 'completed'",
    State.FAILED: "INDEXED BY holdfast_jobs_failed WHERE state = 'failed'",
    State.CANCELLED: "INDEXED BY holdfast_jobs_cancelled WHERE state = 'cancelled'",
}


def jobs(session: Session, where: JobFilter, cursor: str | None, limit: int) -> list[Job[Any]]:
    return [rows.job_of(row) for row in _matching(session, "*", where, _states_of(where), cursor, limit)]


def glances(session: Session, where: JobFilter, limit: int) -> list[Glance]:
    found = _matching(session, ", ".join(Glance.__struct_fields__), where, _states_of(where), None, limit)
    return [rows.glance_of(row) for row in found]


def count(session: Session, where: JobFilter, cap: int) -> int:
    return len(_matching(session, "id", where, _states_of(where), None, cap))


def cancel_many(session: Session, where: JobFilter, by: str | None, cursor: str | None, limit: int) -> Acted:
    return _act(session, steer.cancel, CANCELLABLE, where, by, cursor, limit)


def retry_many(session: Session, where: JobFilter, by: str | None, cursor: str | None, limit: int) -> Acted:
    return _act(session, steer.retry, RETRYABLE, where, by, cursor, limit)


def _act(
    session: Session,
    act: Callable[[Session, str, str | None], object],
    allowed: Sequence[State],
    where: JobFilter,
    by: str | None,
    cursor: str | None,
    limit: int,
) -> Acted:
    states = [state for state in allowed if where.state in (None, state)]
    picked = [str(row["id"]) for row in _matching(session, "id", where, states, cursor, limit)]
    done = []
    for job_id in picked:
        try:
            act(session, job_id, by)  # refuses before it writes anything
        except HoldfastError:
            continue
        done.append(job_id)
    return Acted(done, len(picked) - len(done), picked[-1] if len(picked) == limit else None)


def _states_of(where: JobFilter) -> Sequence[State | None]:
    if where.state is not None:
        return [where.state]
    return list(State) if where.tenant is not None and where.batch is None else [None]


def _matching(
    session: Session, columns: str, where: JobFilter, states: Sequence[State | None], cursor: str | None, limit: int
) -> list[sqlite3.Row]:
    """State by state, each from its own place in the index, newest first."""
    values = {
        "cursor": cursor,
        "queue": where.queue,
        "task": where.task,
        "tenant": where.tenant,
        "project": where.project,
        "tag": where.tag,
        "batch": where.batch,
        "after": where.after and where.after.timestamp(),
        "before": where.before and where.before.timestamp(),
        "since": where.since,
        "limit": limit,
    }
    found: list[sqlite3.Row] = []
    for state in states:
        sql = STATEMENTS["job_list"].replace("SELECT *", f"SELECT {columns}")
        if where.batch is not None:
            of_state = "" if state is None else f" AND state = '{state.value}'"
            sql = sql.replace("WHERE true /* state */", _OF_BATCH + of_state)
        elif state is not None:
            start = _OF_ALL[state] if where.tenant is None else _OF_TENANT.format(state.value)
            sql = sql.replace("WHERE true /* state */", start)
        found += session.execute(sql, values).fetchall()
    if len(states) > 1:
        found.sort(key=lambda row: str(row["id"]), reverse=True)
    return found[:limit]
