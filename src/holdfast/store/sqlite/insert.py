"""Step 1, accept: one statement whose only parameter is JSON, so that it fits any connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.job import State
from holdfast.store.protocol import CallerStatement, Inserted, NewJob
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json


def statement_for(jobs: Sequence[NewJob], now: float) -> CallerStatement:
    return CallerStatement(STATEMENTS["job_insert_many"], as_json([_row_of(job, now) for job in _one_per_key(jobs)]))


def insert(session: Session, jobs: Sequence[NewJob]) -> list[Inserted]:
    statement = statement_for(jobs, session.now)
    inserted = inserted_from_rows(jobs, session.execute(statement.sql, {"1": statement.parameter}).fetchall())
    for job, answer in zip(jobs, inserted, strict=True):
        if answer.created:
            session.wake_queue(job.queue)
    return inserted


def inserted_from_rows(jobs: Sequence[NewJob], rows: Sequence[Sequence[Any]]) -> list[Inserted]:
    by_id = {row[0]: row for row in rows}
    by_key = {(row[3] or "", row[4]): row for row in rows if row[4] is not None}
    answers = []
    for job in jobs:
        row = by_id.get(job.id) or by_key[(job.tenant or "", job.unique_key)]
        answers.append(Inserted(row[0], row[1], State(row[2]), created=row[0] == job.id, queue=row[5], priority=row[6]))
    return answers


def _row_of(job: NewJob, now: float) -> dict[str, Any]:
    # A time that has passed means now: waits are counted from it, and the oldest goes first.
    run_at = now + (job.delay or 0.0) if job.run_at is None else max(now, job.run_at.timestamp())
    known = {**msgspec.structs.asdict(job), "run_at": run_at, "now": now}
    return {name: value for name, value in known.items() if value is not None}


def _one_per_key(jobs: Sequence[NewJob]) -> list[NewJob]:
    """The first of those that share a tenant and unique key; the others are answered with it."""
    chosen: dict[Any, NewJob] = {}
    for job in jobs:
        chosen.setdefault(job.id if job.unique_key is None else (job.tenant or "", job.unique_key), job)
    return list(chosen.values())
