"""Lists of jobs, and what is done to all that match."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
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
_LIST_LINES = [
    (line, found[1] or found[2] if (found := re.search(r"coalesce\(:(\w+)|:(\w+) IS NULL OR", line)) else None)
    for line in STATEMENTS["job_list"].rstrip().rstrip(";").splitlines()
]
"""Each with the value that it needs, if it is a condition that may be left out."""
_QUEUED = (
    "INDEXED BY holdfast_jobs_claimable WHERE state = 'queued' AND hold IS NULL",
    "INDEXED BY holdfast_jobs_scheduled WHERE state = 'queued' AND hold = 'time'",
    """INDEXED BY holdfast_jobs_order_key WHERE order_key IS NOT NULL
       AND (state IN ('queued', 'running') OR (state = 'failed' AND order_blocks)) AND state = 'queued' AND hold = 'order'""",
)
"""What is queued has an index for each reason to wait, fit for counting: they are not in the order of ids."""


def jobs(session: Session, where: JobFilter, cursor: str | None, limit: int) -> list[Job[Any]]:
    return [rows.job_of(row) for row in _matching(session, "*", where, _states_of(where), cursor, limit)]


def glances(session: Session, where: JobFilter, limit: int) -> list[Glance]:
    found = _matching(session, ", ".join(Glance.__struct_fields__), where, _states_of(where), None, limit)
    return [rows.glance_of(row) for row in found]


def count(session: Session, where: JobFilter, cap: int) -> int:
    """By the database, which needs no rows for it where an index tells all that is asked."""
    values = _values(where, None, cap)
    if where.state is State.QUEUED and where.tenant is None and where.batch is None:
        statements = [_statement(part, "id", values) for part in _QUEUED]
    else:
        statements = list(_statements("id", where, _states_of(where), values))
    counting = [f"SELECT count(*) AS n FROM ({sql.replace('ORDER BY id DESC', '')})" for sql in statements]
    return min(cap, sum(int(session.execute(sql, values).fetchall()[0]["n"]) for sql in counting))


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
    values = _values(where, cursor, limit)
    found: list[sqlite3.Row] = []
    for sql in _statements(columns, where, states, values):
        found += session.execute(sql, values).fetchall()
    if len(states) > 1:
        found.sort(key=lambda row: str(row["id"]), reverse=True)
    return found[:limit]


def _values(where: JobFilter, cursor: str | None, limit: int) -> dict[str, Any]:
    return {
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


def _statements(columns: str, where: JobFilter, states: Sequence[State | None], values: dict[str, Any]) -> Iterator[str]:
    for state in states:
        start = "WHERE true"
        if where.batch is not None:
            start = _OF_BATCH + ("" if state is None else f" AND state = '{state.value}'")
        elif state is not None:
            start = _OF_ALL[state] if where.tenant is None else _OF_TENANT.format(state.value)
        yield _statement(start, columns, values)


def _statement(start: str, columns: str, values: dict[str, Any]) -> str:
    """Without the conditions that are not asked for: over thousands of rows each would cost as much as one that is."""
    given = (line for line, name in _LIST_LINES if name is None or values[name] is not None)
    return "\n".join(given).replace("SELECT *", f"SELECT {columns}").replace("WHERE true /* state */", start)
