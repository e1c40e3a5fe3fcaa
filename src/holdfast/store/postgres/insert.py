"""Step 1, accept: which statement inserts these jobs, and what its rows say. Each takes one JSON text, for any driver."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.job import State
from holdfast.store.postgres.tenants import STATEMENTS
from holdfast.store.protocol import CallerStatement, Inserted, NewJob

_encode = msgspec.json.encode
NAMED_MAX = 8
"""Of so many jobs, `job_insert_many` names the tenants in its wake-up; `job_insert_alike` never does."""
_STATES = {state.value: state for state in State}


def statement_for(jobs: Sequence[NewJob], now: datetime | None) -> CallerStatement:
    if are_alike(jobs):
        columns = {name: [getattr(job, name) for job in jobs] for name in ("id", "run_id", "args", "tenant")}
        return CallerStatement(STATEMENTS["job_insert_alike"], _encode({"now": now, "same": jobs[0], **columns}).decode())
    payload = _encode(list(_one_per_key(jobs).values()))
    if now is not None:
        payload = _encode([{**row, "now": now} for row in msgspec.json.decode(payload)])
    return CallerStatement(STATEMENTS["job_insert_many"], payload.decode())


def are_alike(jobs: Sequence[NewJob]) -> bool:
    """Whether they differ in ids, arguments and tenant only, and nothing about them is for the database to decide."""
    first = jobs[0]
    if len(jobs) <= NAMED_MAX or first.unique_key is not None or first.delay is not None or first.run_at is not None:
        return False
    expected = copy.copy(first)
    for job in jobs:
        expected.id, expected.run_id, expected.args, expected.tenant = job.id, job.run_id, job.args, job.tenant
        # Equal is not enough for what is free JSON: 1 and True are equal.
        if job != expected or job.meta is not first.meta:
            return False
    return len({job.id for job in jobs}) == len(jobs)


def inserted_from_rows(jobs: Sequence[NewJob], rows: Sequence[Sequence[Any]]) -> list[Inserted]:
    """A row without an id is said of all those that were inserted alike."""
    by_id = {row[0]: row for row in rows}
    by_key = {scope(row[3], row[4]): row for row in rows if row[4] is not None}
    answers = []
    for job in jobs:
        row = by_id.get(job.id) or (by_id[None] if job.unique_key is None else by_key[scope(job.tenant, job.unique_key)])
        job_id = row[0] or job.id
        answers.append(Inserted(job_id, row[1] or job.run_id, _STATES[row[2]], job_id == job.id, row[5], row[6]))
    return answers


def scope(tenant: str | None, unique_key: str | None) -> tuple[str, str | None]:
    """As the unique index has it: no tenant and an empty one are the same."""
    return tenant or "", unique_key


def _one_per_key(jobs: Sequence[NewJob]) -> dict[Any, NewJob]:
    """The first of those that share a tenant and unique key: one statement cannot upsert the same row twice."""
    chosen: dict[Any, NewJob] = {}
    for job in jobs:
        chosen.setdefault(job.id if job.unique_key is None else scope(job.tenant, job.unique_key), job)
    return chosen
