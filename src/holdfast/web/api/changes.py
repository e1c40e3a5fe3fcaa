"""/api/jobs/stream: what becomes of a tenant's newest jobs, as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import zip_longest
from typing import Annotated, Any

import msgspec
from fastapi import Header, Query, Request
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.errors import StorageUnavailable
from holdfast.job import State
from holdfast.store.protocol import Glance, JobFilter
from holdfast.web.access import Act, require
from holdfast.web.paging import TenantQuery
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, scope
from holdfast.web.stream import DOCUMENTED, event, stream

router = guarded_router("jobs")

POLL_SECONDS = 1.0
WINDOW = 200
"""How many of the newest jobs are watched, and how many of those that run."""
MICROSECONDS = 1_000_000
AfterQuery = Annotated[int | None, Query(ge=0, le=2**62, description="The `id` of the last event seen.")]


@router.get("/jobs/stream", summary="Jobs as they change", response_class=Response, responses={**answers(404), **DOCUMENTED})
async def stream_jobs(
    request: Request,
    caller: CallerDep,
    hf: HoldfastDep,
    tenant: TenantQuery = None,
    after: AfterQuery = None,
    last_event_id: Annotated[int | None, Header(ge=0, le=2**62, description="Stronger than `after`.")] = None,
) -> Response:
    """Each event is a job that has changed; those that changed twice within a second come once. Without `after` or
    `Last-Event-ID` only what changes from now on. The newest 200 jobs are watched, and 200 that run."""
    require(caller, Act.READ_JOBS)
    start = after if last_event_id is None else last_event_id
    return stream(request, caller, _changes(hf, scope(caller, tenant), start))


async def _changes(hf: Holdfast, tenant: str | None, after: int | None) -> AsyncIterator[bytes]:
    seen: dict[str, Glance] = {}
    first = True
    while True:
        try:
            found = await _window(hf, tenant)
        except StorageUnavailable:
            await asyncio.sleep(POLL_SECONDS)
            continue
        changed = [
            job
            for job in sorted(found.values(), key=lambda job: (job.updated_at, job.id))
            if (seen.get(job.id) != job if not first else after is not None and _moment(job) > after)
        ]
        for job, following in zip_longest(changed, changed[1:]):
            # Of those that changed in one moment only the last one has an id: who leaves between them is told of all again.
            last = following is None or _moment(following) != _moment(job)
            yield event(_shown(job), id=_moment(job) if last else None)
        seen, first = found, False
        await asyncio.sleep(POLL_SECONDS)


def _moment(job: Glance) -> int:
    return round(job.updated_at.timestamp() * MICROSECONDS)


async def _window(hf: Holdfast, tenant: str | None) -> dict[str, Glance]:
    newest = await hf.store.job_glances(JobFilter(tenant=tenant), limit=WINDOW)
    running = await hf.store.job_glances(JobFilter(tenant=tenant, state=State.RUNNING), limit=WINDOW)
    return {job.id: job for job in (*running, *newest)}


def _shown(job: Glance) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(job)
    del shown["hold"], shown["cancel_requested_at"]
    return {**shown, "status": job.status}
