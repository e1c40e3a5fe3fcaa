"""/api/machines: those that come and go with the work, and what they cost."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.app import Holdfast
from holdfast.processes.machines import POOL_MAX, MachineView
from holdfast.web.access import Act, Caller, may, require
from holdfast.web.paging import TenantQuery
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("machines")

MachineName = Annotated[str, Path(min_length=1, max_length=200)]
Month = Annotated[str | None, Query(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])$", description="Such as 2026-11; else all.")]


class Machine(BaseModel):
    id: str
    name: str
    kind: str = Field(description="pool: stopped and started again; burst: made for a rush, gone when idle.")
    state: str
    region: str | None
    started_at: datetime | None
    up_seconds: float | None
    estimated_cost: float | None = Field(description="Since its last start, at the configured rate. For the service role.")
    job_ids: list[str] = Field(description="Those of the caller's organization that run on it.")
    workers: list[str] = Field(description="For the service role.")
    said: str


class MachineList(BaseModel):
    provider: str
    items: list[Machine]


class Changed(BaseModel):
    names: list[str] = Field(description="Machines that were asked to start or stop, made or destroyed.")


class Pool(BaseModel):
    size: int = Field(ge=0, le=POOL_MAX)


class Usage(BaseModel):
    month: str
    subject: str = Field(description="machines: the time that they were up; tenant: what its runs had of it.")
    tenant: str | None
    runs: int
    seconds: float
    estimated_cost: float


class UsageList(BaseModel):
    items: list[Usage]


class JobUsage(BaseModel):
    job_id: str
    runs: int
    seconds: float
    estimated_cost: float


async def visible_machines(hf: Holdfast, caller: Caller) -> list[MachineView]:
    """What this caller may see: without the service role neither other machines, nor whose jobs run beside his."""
    machines = await hf.machines.list() if hf.machines.configured else []
    if may(caller, Act.OPERATE) or not machines:
        return machines
    own = {str(job["id"]) for job in await hf.machines.running_jobs() if job["tenant"] == caller.tenant}
    for machine in machines:
        machine.job_ids = [job_id for job_id in machine.job_ids if job_id in own]
        machine.workers, machine.estimated_cost = [], None
    return [machine for machine in machines if machine.job_ids]


@router.get("/machines", summary="Machines", response_model=MachineList, responses=answers(502))
async def list_machines(caller: CallerDep, hf: HoldfastDep) -> Response:
    """For admins those that run a job of their organization; for the service role all."""
    require(caller, Act.READ_MACHINES)
    shown = msgspec.to_builtins(await visible_machines(hf, caller))
    return reply({"provider": hf.settings.machine_provider, "items": shown})


@router.post("/machines", summary="Start a machine", response_model=Changed, responses=answers(409, 502))
async def start_any_machine(caller: CallerDep, hf: HoldfastDep) -> Response:
    """One of the pool that is stopped, or a new one. For the service role."""
    require(caller, Act.OPERATE)
    return reply({"names": [await hf.machines.start(by=caller.actor)]})


@router.put("/machines/pool", summary="Size of the pool", response_model=Changed, responses=answers(409, 502))
async def scale_machines(body: Pool, caller: CallerDep, hf: HoldfastDep) -> Response:
    """What is missing is made and stops again when idle; of those too many, the stopped ones go. For the service role."""
    require(caller, Act.OPERATE)
    return reply({"names": await hf.machines.scale(body.size, by=caller.actor)})


@router.get("/machines/usage", summary="What machines cost", response_model=UsageList, responses=answers(404))
async def machine_usage(caller: CallerDep, hf: HoldfastDep, month: Month = None, tenant: TenantQuery = None) -> Response:
    """By month and tenant. For admins their own, for the service role all, and the time that machines were up."""
    require(caller, Act.READ_MACHINES)
    return reply({"items": await hf.machines.usage(month=month, tenant=scope(caller, tenant))})


@router.post("/machines/{name}/start", summary="Start this machine", response_model=Changed, responses=answers(404, 409, 502))
async def start_machine(name: MachineName, caller: CallerDep, hf: HoldfastDep) -> Response:
    """For the service role."""
    require(caller, Act.OPERATE)
    return reply({"names": [await hf.machines.start(name, by=caller.actor)]})


@router.post("/machines/{name}/stop", summary="Stop this machine", response_model=Changed, responses=answers(404, 409, 502))
async def stop_machine(name: MachineName, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Its worker drains; what does not end in time goes back to the queue uncounted. For the service role."""
    require(caller, Act.OPERATE)
    return reply({"names": [await hf.machines.stop(name, by=caller.actor)]})


@router.get("/jobs/{job_id}/usage", summary="Machine time of a job", response_model=JobUsage, responses=answers(404))
async def job_usage(job_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Of all its runs; where others ran beside it, it had only a part of the machine."""
    require(caller, Act.READ_JOBS)
    return reply(await hf.machines.usage_of_job(job_id, tenant=caller.tenant))
