"""/api/tenants: an organization, what it may do, and what holds its jobs. Only the service sets limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from holdfast.store.protocol import UNCHANGED
from holdfast.web import models
from holdfast.web.access import Act, Caller, require
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("tenants")

TenantId = Annotated[str, Path(min_length=1, max_length=200)]


@router.get("/tenants/{tenant}", summary="An organization", response_model=models.Tenant, responses=answers(404))
async def get_tenant(tenant: TenantId, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_TENANT)
    return reply(await hf.tenants.get(_own(caller, tenant)))


@router.get("/tenants/{tenant}/why", summary="What holds its jobs", response_model=models.Why, responses=answers(404))
async def why_tenant(tenant: TenantId, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_TENANT)
    known = await hf.tenants.get(_own(caller, tenant))
    return reply(await hf.why_tenant(known.id))


@router.get("/tenants/{tenant}/limits", summary="Its plan and limits", response_model=models.Tenant, responses=answers(404))
async def get_limits(tenant: TenantId, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.READ_TENANT)
    return reply(await hf.tenants.get(_own(caller, tenant)))


@router.put("/tenants/{tenant}/limits", summary="Set its plan and limits", response_model=models.Tenant, responses=answers(404))
async def set_limits(tenant: TenantId, body: models.TenantLimits, caller: CallerDep, hf: HoldfastDep) -> Response:
    """For the service role: nobody raises his own plan. Holds from the next claim on."""
    require(caller, Act.SET_LIMITS)
    said = {name: getattr(body, name) for name in body.model_fields_set}
    for name in ("plan", "timezone"):
        if said.get(name, UNCHANGED) is None:
            del said[name]
    return reply(await hf.tenants.set(_own(caller, tenant), **said, by=caller.actor))


@router.post("/tenants/{tenant}/pause", summary="Pause it", response_model=models.Tenant, responses=answers(404))
async def pause_tenant(tenant: TenantId, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Nothing of it is started any more; what runs goes on."""
    require(caller, Act.PAUSE)
    return reply(await hf.tenants.pause(_own(caller, tenant), by=caller.actor))


@router.post("/tenants/{tenant}/resume", summary="Resume it", response_model=models.Tenant, responses=answers(404))
async def resume_tenant(tenant: TenantId, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.PAUSE)
    return reply(await hf.tenants.resume(_own(caller, tenant), by=caller.actor))


def _own(caller: Caller, tenant: str) -> str:
    return scope(caller, tenant) or tenant
