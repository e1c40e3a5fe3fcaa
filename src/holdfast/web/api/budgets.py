"""/api/budgets: what an organization may spend in a month, and has spent. Only the service sets and overrides caps."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.codec import CENTS_MAX
from holdfast.errors import InvalidOption
from holdfast.web.access import Act, require
from holdfast.web.api.asked import LimitQuery, TenantQuery, tenant_named
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply, scope

router = guarded_router("budgets")

Kind = Annotated[str, Path(min_length=1, max_length=100)]
CursorQuery = Annotated[str | None, Query(min_length=1, max_length=1000, description="`next_cursor` of the page before.")]


class Budget(BaseModel):
    tenant: str | None = Field(description="Null: of jobs without a tenant.")
    kind: str
    month: str = Field(examples=["2026-11"])
    cents: float | None = Field(description="What may be spent this month. Null: there is no cap.")
    spent: float
    late: float = Field(description="The part of `spent` that came from runs which had lost their job.")
    reserved: float = Field(description="What running jobs may still spend.")
    extra: float = Field(description="Added to the cap for this month alone.")
    by_plan: bool = Field(description="Whether the cap is the plan's.")
    timezone: str
    resets_at: datetime
    status: Literal["no_cap", "ok", "warning", "used_up"]


class BudgetPage(BaseModel):
    items: list[Budget]
    next_cursor: Cursor


class BudgetCap(Taken):
    cents: float | None = Field(ge=0, le=CENTS_MAX, description="Per month. Null: as the plan says.")


class BudgetOverride(Taken):
    cents: float = Field(ge=-CENTS_MAX, le=CENTS_MAX, description="So much more this month; negative: less.")
    reason: Name | None = None


@router.get("/budgets", summary="Budgets, by organization and kind", response_model=BudgetPage, responses=answers(404))
async def list_budgets(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    """Those with a cap, and those with spending this month."""
    require(caller, Act.READ_BUDGETS)
    found = await hf.budgets.list(scope(caller, tenant), after=_after(cursor), limit=limit)
    last = found[-1] if len(found) == limit else None
    next_cursor = None if last is None else f"{quote(last.tenant or '', safe='')}/{quote(last.kind, safe='')}"
    return reply({"items": [one.as_dict() for one in found], "next_cursor": next_cursor})


@router.get("/budgets/{kind}", summary="A budget", response_model=Budget, responses=answers(404))
async def get_budget(kind: Kind, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    require(caller, Act.READ_BUDGETS)
    return reply((await hf.budgets.get(tenant_named(caller, tenant), kind)).as_dict())


@router.put("/budgets/{kind}", summary="Set its cap", response_model=Budget, responses=answers(404))
async def set_budget(kind: Kind, body: BudgetCap, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """For the service role: nobody raises his own budget. Jobs that were held ask again at once."""
    require(caller, Act.SET_LIMITS)
    saved = await hf.budgets.set(tenant_named(caller, tenant), kind, cents=body.cents, by=caller.actor)
    return reply(saved.as_dict())


@router.post("/budgets/{kind}/override", summary="More for this month", response_model=Budget, responses=answers(404))
async def override_budget(
    kind: Kind, body: BudgetOverride, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    """For the service role. The cap of the next month is the old one; who did it and why is an event."""
    require(caller, Act.SET_LIMITS)
    who = tenant_named(caller, tenant)
    return reply((await hf.budgets.override(who, kind, cents=body.cents, reason=body.reason, by=caller.actor)).as_dict())


def _after(cursor: str | None) -> tuple[str, str] | None:
    if cursor is None:
        return None
    tenant, slash, kind = cursor.partition("/")
    if not slash or "\0" in unquote(cursor):
        raise InvalidOption("cursor must be the next_cursor of the page before.")
    return unquote(tenant), unquote(kind)
