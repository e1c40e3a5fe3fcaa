"""/api/keys: what calls this API. Admins make and revoke keys of their own organization, up to their own role."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from fastapi import Request
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.errors import Forbidden
from holdfast.roles import ROLES
from holdfast.store.protocol import Transaction
from holdfast.web.access import Act, Caller, require
from holdfast.web.api.asked import CursorQuery, LimitQuery, TenantQuery
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, link, once_by_itself, reply, scope

router = guarded_router("keys")


class Key(BaseModel):
    id: str
    tenant: str | None = Field(description="Null: a key of the service role, across all organizations.")
    role: str
    name: str | None
    prefix: str = Field(description="How its secret begins.")
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None = Field(description="Exact to a minute.")


class NewKey(Taken):
    role: Literal["viewer", "member", "admin", "owner", "service"] = "member"
    expires: str | None = Field(None, pattern=r"^[0-9]{1,6}[smhdw]$", examples=["90d"], description="Null: never.")
    name: Name | None = None
    tenant: Name | None = Field(None, description="For the service role; others make keys of their own organization.")


class MadeKey(Key):
    secret: str | None = Field(
        description="Shown now and never again: null in an answer that is given again by its Idempotency-Key."
    )


class KeyPage(BaseModel):
    items: list[Key]
    next_cursor: Cursor


@router.get("/keys", summary="List keys, newest first", response_model=KeyPage, responses=answers(404))
async def list_keys(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.MANAGE_KEYS)
    found = await hf.keys.list(tenant=scope(caller, tenant), cursor=cursor, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].id if len(found) == limit else None})


@router.post(
    "/keys",
    summary="Make a key",
    status_code=201,
    response_model=MadeKey,
    responses={**answers(404), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
@once_by_itself
async def make_key(request: Request, body: NewKey, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_KEYS)
    require_own_role(caller, body.role)
    tenant = scope(caller, body.tenant)

    async def work(tx: Transaction | None) -> Response:
        made = await hf.keys.create(tenant=tenant, role=body.role, expires=body.expires, name=body.name, by=caller.actor, tx=tx)
        return reply({**asdict(made.key), "secret": made.secret}, 201, {"Location": link(request, f"/keys/{made.key.id}")})

    return await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor, hide=("secret",))


@router.get("/keys/{key_id}", summary="A key", response_model=Key, responses=answers(404))
async def get_key(key_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    require(caller, Act.MANAGE_KEYS)
    return reply(await hf.keys.get(key_id, tenant=caller.tenant))


@router.delete("/keys/{key_id}", summary="Revoke a key", status_code=204, response_class=Response, responses=answers(404, 409))
async def revoke_key(key_id: str, caller: CallerDep, hf: HoldfastDep) -> Response:
    """Holds within two seconds everywhere; browser sessions that began with the key end too."""
    require(caller, Act.MANAGE_KEYS)
    key = await hf.keys.get(key_id, tenant=caller.tenant)
    require_own_role(caller, key.role)
    await hf.keys.revoke(key_id, tenant=caller.tenant, by=caller.actor)
    return Response(status_code=204)


def require_own_role(caller: Caller, role: str) -> None:
    if ROLES[role] > caller.role:
        raise Forbidden(f"A caller who is {caller.role.word} manages keys up to that role, not those of the role {role}.")
