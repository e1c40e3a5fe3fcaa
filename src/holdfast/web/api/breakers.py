"""/api/breakers: whether the services that jobs need are well. Tenants share them, so they are the service role's."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.web.access import Act, require
from holdfast.web.models import Name, Taken
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, reply

router = guarded_router("breakers")

ServiceName = Annotated[str, Path(min_length=1, max_length=100)]


class Breaker(BaseModel):
    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int = Field(description="In the present window.")
    reason: str | None
    opened_at: datetime | None
    opened_by: str | None = Field(description="Null: by failures.")
    until_at: datetime | None = Field(description="When a probe may go. Null while it is open: when somebody closes it.")


class BreakerList(BaseModel):
    items: list[Breaker]


class Opening(Taken):
    reason: Name | None = None
    seconds: float | None = Field(None, ge=0, le=3_155_760_000, description="Until a probe may go. Null: until it is closed.")


@router.get("/breakers", summary="Breakers, by service", response_model=BreakerList)
async def list_breakers(caller: CallerDep, hf: HoldfastDep) -> Response:
    """For the service role: the reason may quote another tenant's failure."""
    require(caller, Act.OPERATE)
    return reply({"items": await hf.breakers.list()})


@router.get("/breakers/{name}", summary="A breaker", response_model=Breaker)
async def get_breaker(name: ServiceName, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Also of a service that never failed: it is closed."""
    require(caller, Act.OPERATE)
    return reply(await hf.breakers.get(name))


@router.post("/breakers/{name}/open", summary="Open a breaker", response_model=Breaker)
async def open_breaker(name: ServiceName, body: Opening, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Jobs that need the service wait, without costing attempts."""
    require(caller, Act.OPERATE)
    return reply(await hf.breakers.open(name, reason=body.reason, seconds=body.seconds, by=caller.actor))


@router.post("/breakers/{name}/close", summary="Close a breaker", response_model=Breaker)
async def close_breaker(name: ServiceName, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Jobs go on, spread over a while."""
    require(caller, Act.OPERATE)
    return reply(await hf.breakers.close(name, by=caller.actor))
