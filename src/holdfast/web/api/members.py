"""/api/members: who is what in an organization. Owners manage members; the last owner cannot be taken away."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from urllib.parse import quote

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.store.protocol import Transaction
from holdfast.web.access import Act, require
from holdfast.web.api.asked import CursorQuery, LimitQuery, TenantQuery, tenant_named
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, link, once_by_itself, reply

router = guarded_router("members")

MemberRole = Literal["viewer", "member", "admin", "owner"]


class Member(BaseModel):
    tenant: str
    user_id: str = Field(description="The `sub` of his tokens.")
    role: MemberRole
    added_at: datetime
    added_by: str | None


class NewMember(Taken):
    user_id: Name
    role: MemberRole = "member"


class RoleChange(Taken):
    role: MemberRole


class MemberPage(BaseModel):
    items: list[Member]
    next_cursor: Cursor


@router.get("/members", summary="List members, by user id", response_model=MemberPage, responses=answers(404))
async def list_members(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.READ_MEMBERS)
    found = await hf.members.list(tenant_named(caller, tenant), cursor=cursor, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].user_id if len(found) == limit else None})


@router.post(
    "/members",
    summary="Add a member",
    status_code=201,
    response_model=Member,
    responses={**answers(404, 409), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
@once_by_itself
async def add_member(
    request: Request, body: NewMember, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    require(caller, Act.MANAGE_MEMBERS)
    organization = tenant_named(caller, tenant)

    async def work(tx: Transaction | None) -> Response:
        added = await hf.members.add(organization, body.user_id, body.role, by=caller.actor, tx=tx)
        return reply(added, 201, {"Location": link(request, f"/members/{quote(added.user_id, safe='')}")})

    return await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor)


@router.get("/members/{user_id:path}", summary="A member", response_model=Member, responses=answers(404))
async def get_member(user_id: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    require(caller, Act.READ_MEMBERS)
    return reply(await hf.members.get(tenant_named(caller, tenant), user_id))


@router.patch("/members/{user_id:path}", summary="Change a member's role", response_model=Member, responses=answers(404, 409))
async def change_role(
    user_id: str, body: RoleChange, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    """409 `last_owner` where nobody would own the organization any more."""
    require(caller, Act.MANAGE_MEMBERS)
    return reply(await hf.members.set_role(tenant_named(caller, tenant), user_id, body.role, by=caller.actor))


@router.delete(
    "/members/{user_id:path}", summary="Remove a member", status_code=204, response_class=Response, responses=answers(404, 409)
)
async def remove_member(user_id: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """His access ends within two seconds. 409 `last_owner` where nobody would own the organization any more."""
    require(caller, Act.MANAGE_MEMBERS)
    await hf.members.remove(tenant_named(caller, tenant), user_id, by=caller.actor)
    return Response(status_code=204)
