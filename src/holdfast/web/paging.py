"""What lists have in common: how much of them, from where on, and which of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Query

from holdfast.job import State

LIMIT_DEFAULT = 50
LIMIT_MAX = 200
NUMBER_MAX = 2**31 - 1

LimitQuery = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at the most.")]
CursorQuery = Annotated[str | None, Query(max_length=100, description="`next_cursor` of the page before.")]
NameQuery = Annotated[str | None, Query(min_length=1, max_length=200)]
TenantQuery = Annotated[str | None, Query(min_length=1, max_length=200, description="For the service role: of this one only.")]


async def _filter(
    state: State | None = None,
    queue: NameQuery = None,
    task: NameQuery = None,
    tenant: TenantQuery = None,
    project: NameQuery = None,
    tag: NameQuery = None,
    after: Annotated[datetime | None, Query(description="Enqueued then or later.")] = None,
    before: Annotated[datetime | None, Query(description="Enqueued before.")] = None,
    batch: NameQuery = None,
) -> dict[str, Any]:
    given = {"state": state, "queue": queue, "task": task, "tenant": tenant, "project": project, "tag": tag}
    return {**given, "after": after, "before": before, "batch": batch}


FilterDep = Annotated[dict[str, Any], Depends(_filter)]
