"""/api/events: what was unusual; and /api/dead: the jobs that failed."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from holdfast.job import State
from holdfast.web import models
from holdfast.web.access import Act, require, visible_event, visible_job
from holdfast.web.paging import LIMIT_DEFAULT, CursorQuery, LimitQuery, NameQuery, TenantQuery
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("events")


@router.get("/events", summary="What happened, newest first", response_model=models.EventPage, responses=answers(404))
async def list_events(
    caller: CallerDep,
    hf: HoldfastDep,
    tenant: TenantQuery = None,
    cursor: Annotated[int | None, Query(ge=1, le=2**62, description="`next_cursor` of the page before.")] = None,
    limit: LimitQuery = LIMIT_DEFAULT,
) -> Response:
    require(caller, Act.READ_EVENTS)
    found = await hf.events(tenant=scope(caller, tenant), before=cursor, limit=limit)
    next_cursor = str(found[-1].id) if len(found) == limit else None
    return reply({"items": [visible_event(caller, event) for event in found], "next_cursor": next_cursor})


@router.get("/dead", summary="Jobs that failed, newest first", response_model=models.JobPage, responses=answers(404))
async def list_dead(
    caller: CallerDep,
    hf: HoldfastDep,
    tenant: TenantQuery = None,
    queue: NameQuery = None,
    task: NameQuery = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = LIMIT_DEFAULT,
) -> Response:
    """Each keeps its payload, its error and the logs of every attempt. `POST /api/jobs/retry` replays them by filter."""
    require(caller, Act.READ_JOBS)
    where = {"state": State.FAILED, "tenant": scope(caller, tenant), "queue": queue, "task": task}
    jobs = await hf.jobs(cursor=cursor, limit=limit, **where)
    next_cursor = jobs[-1].id if len(jobs) == limit else None
    return reply({"items": [visible_job(caller, job) for job in jobs], "next_cursor": next_cursor})
