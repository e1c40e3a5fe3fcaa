"""/api/schedules: what happens by the clock. Admins manage those of their own organization, for tasks that are exposed."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.errors import InvalidOption
from holdfast.schedule import Schedule as Known
from holdfast.web.access import Act, Caller, may, require, task_to_enqueue
from holdfast.web.api.asked import LimitQuery, TenantQuery
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("schedules")

PlaceQuery = Annotated[str | None, Query(min_length=1, max_length=1000, description="`next_cursor` of the page before.")]


class Schedule(BaseModel):
    name: str
    tenant: str | None
    task: str | None = Field(description="Null: the system's own work.")
    args: dict[str, Any] | None = Field(description="For admins; null for others, and where the task keeps them private.")
    cron: str | None
    seconds: float | None
    tz: str
    missed: Literal["skip", "once"]
    declared: bool = Field(description="It stands in code, and is changed there.")
    next_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    last_at: datetime | None
    last_job_id: str | None
    last_state: str | None
    last_error: str | None
    result: dict[str, Any] | None = Field(description="What the system's own work came to.")
    error: str | None = Field(description="Why its last tick made no job.")
    created_at: datetime
    created_by: str | None
    updated_at: datetime


class ScheduleChange(Taken):
    task: Name
    cron: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(None, examples=["0 8 * * mon-fri"])
    seconds: float | None = Field(None, ge=1, description="Excludes `cron`.")
    tz: Annotated[str, Field(min_length=1, max_length=100)] = Field("UTC", examples=["Europe/Paris"])
    args: dict[str, Any] = {}
    missed: Literal["skip", "once"] = Field("skip", description="Ticks that nobody kept: none, or one job for all of them.")


class SchedulePage(BaseModel):
    items: list[Schedule]
    next_cursor: Cursor


class ScheduleRun(BaseModel):
    job_id: str | None = Field(description="Null: the system's own work, which makes no job.")


@router.get(
    "/schedules", summary="List schedules, by organization and name", response_model=SchedulePage, responses=answers(404)
)
async def list_schedules(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: PlaceQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.READ_SCHEDULES)
    found = await hf.schedules.list(tenant=scope(caller, tenant), cursor=_place(cursor), limit=limit)
    place = [found[-1].tenant or "", found[-1].name] if len(found) == limit else None
    next_cursor = None if place is None else msgspec.json.encode(place).decode()
    return reply({"items": [_visible(caller, hf, one) for one in found], "next_cursor": next_cursor})


@router.put("/schedules/{name:path}", summary="Set a schedule", response_model=Schedule, responses=answers(404, 409))
async def set_schedule(
    name: str, body: ScheduleChange, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    """While its times stay the same, so does its next tick."""
    require(caller, Act.MANAGE_SCHEDULES)
    whose = scope(caller, tenant)
    task = task_to_enqueue(caller, hf.tasks, body.task)
    if (body.cron is None) == (body.seconds is None):
        raise InvalidOption("A schedule has either cron or seconds; give one of them.")
    every = body.seconds if body.cron is None else body.cron
    assert every is not None
    options: dict[str, Any] = {"args": body.args, "tz": body.tz, "missed": body.missed}
    made = await hf.schedules.set(name, task, every, tenant=whose, by=caller.actor, **options)
    return reply(_visible(caller, hf, made))


@router.post("/schedules/{name:path}/pause", summary="Pause a schedule", response_model=Schedule, responses=answers(404, 409))
async def pause_schedule(name: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """What falls into the pause is not made up for."""
    require(caller, Act.MANAGE_SCHEDULES)
    return reply(_visible(caller, hf, await hf.schedules.pause(name, tenant=scope(caller, tenant), by=caller.actor)))


@router.post(
    "/schedules/{name:path}/resume", summary="End the pause of a schedule", response_model=Schedule, responses=answers(404, 409)
)
async def resume_schedule(name: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    require(caller, Act.MANAGE_SCHEDULES)
    return reply(_visible(caller, hf, await hf.schedules.resume(name, tenant=scope(caller, tenant), by=caller.actor)))


@router.post(
    "/schedules/{name:path}/run",
    summary="Run a schedule's job now",
    status_code=202,
    response_model=ScheduleRun,
    responses=answers(404, 409),
)
async def run_schedule(name: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """Its ticks stay as they are."""
    require(caller, Act.MANAGE_SCHEDULES)
    job = await hf.schedules.run_now(name, tenant=scope(caller, tenant), by=caller.actor)
    return reply({"job_id": None if job is None else job.id}, 202)


@router.get("/schedules/{name:path}", summary="A schedule", response_model=Schedule, responses=answers(404))
async def get_schedule(name: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    require(caller, Act.READ_SCHEDULES)
    return reply(_visible(caller, hf, await hf.schedules.get(name, tenant=scope(caller, tenant))))


@router.delete(
    "/schedules/{name:path}",
    summary="Remove a schedule",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409),
)
async def remove_schedule(name: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """The jobs it has made stay as they are."""
    require(caller, Act.MANAGE_SCHEDULES)
    await hf.schedules.remove(name, tenant=scope(caller, tenant), by=caller.actor)
    return Response(status_code=204)


def _visible(caller: Caller, hf: Holdfast, schedule: Known) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(schedule)
    task = hf.tasks.get(schedule.task or "")
    if not may(caller, Act.READ_ARGUMENTS) or task is None or task.spec.private:
        shown["args"] = None
    return shown


def _place(cursor: str | None) -> tuple[str, str]:
    try:
        return ("", "") if cursor is None else msgspec.json.decode(cursor, type=tuple[str, str])
    except (ValueError, UnicodeError, RecursionError):
        raise InvalidOption("cursor must be `next_cursor` of the page before.") from None
