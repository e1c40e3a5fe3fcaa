"""Members and keys of an organization."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.roles import MEMBER_ROLES, ROLES
from holdfast.web.api.keys import require_own_role
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.views.organization import GROUP, choose

PER_PAGE = 50
EXPIRES = {"": "never", "1d": "in a day", "30d": "in 30 days", "90d": "in 90 days", "52w": "in a year"}

pages = Pages("people", nav=[Nav("Members", "/members", "read_members", GROUP), Nav("Keys", "/keys", "manage_keys", GROUP)])


# -- members -----------------------------------------------------------------------------------------------------------


@pages.get("/members", "read_members")
async def list_members(page: PageRequest) -> Any:
    if page.tenant is None:
        return await choose(page)
    found = await page.hf.members.list(page.tenant, cursor=page.query.get("cursor"), limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    next_cursor = shown[-1].user_id if len(found) > PER_PAGE else None
    return page.render("members.html", members=shown, next_cursor=next_cursor, roles=list(MEMBER_ROLES))


@pages.post("/members/add", "manage_members")
async def add_member(page: PageRequest) -> Any:
    form = await page.form()
    if not form.get("user"):
        raise InvalidOption("Name the user as the login calls him: the `sub` of his token.")
    await page.hf.members.add(page.tenant_named(), form.get("user"), form.get("role"), by=page.actor)
    return await page.redirect_back("/members", "added")


@pages.post("/members/role", "manage_members")
async def change_role(page: PageRequest) -> Any:
    tenant, form = page.tenant_named(), await page.form()
    before = await page.hf.members.get(tenant, form.get("user"))
    role = form.get("role")
    sentence = f"{before.user_id}, who is {before.role} of {tenant}, becomes {role}."
    question = await page.confirmed("Change the role of 1 member?", sentence, button="Change the role")
    if question is not None:
        return question
    await page.hf.members.set_role(tenant, before.user_id, role, by=page.actor)
    return await page.redirect_back("/members", "saved")


@pages.post("/members/remove", "manage_members")
async def remove_member(page: PageRequest) -> Any:
    tenant, form = page.tenant_named(), await page.form()
    before = await page.hf.members.get(tenant, form.get("user"))
    sentence = f"Removes {before.user_id}, who is {before.role} of {tenant}. Access ends within two seconds."
    question = await page.confirmed("Remove 1 member?", sentence, button="Remove the member", danger=True)
    if question is not None:
        return question
    await page.hf.members.remove(tenant, before.user_id, by=page.actor)
    return await page.redirect_back("/members", "removed")


# -- keys --------------------------------------------------------------------------------------------------------------


@pages.get("/keys", "manage_keys")
async def list_keys(page: PageRequest) -> Any:
    return await _keys(page)


async def _keys(page: PageRequest, made: Any = None) -> Any:
    found = await page.hf.keys.list(tenant=page.tenant, cursor=page.query.get("cursor"), limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return page.render(
        "keys.html",
        keys=[(key, _state(page, key), ROLES[key.role] <= page.caller.role) for key in shown],
        next_cursor=shown[-1].id if len(found) > PER_PAGE else None,
        roles=_roles(page),
        expires=EXPIRES,
        made=made,
    )


def _roles(page: PageRequest) -> list[str]:
    """Those that this caller may give away here. A key is of one organization, or of the service."""
    if page.tenant is None:
        return ["service"]
    return [word for word, role in MEMBER_ROLES.items() if role <= page.caller.role]


def _state(page: PageRequest, key: Any) -> str:
    if key.revoked_at:
        return "revoked"
    return "expired" if key.expires_at and key.expires_at <= page.now else "valid"


@pages.post("/keys/make", "manage_keys")
async def make_key(page: PageRequest) -> Any:
    """Answered at once and not by way of another address: the secret is shown now and never again."""
    form = await page.form()
    role, expires = form.get("role"), form.get("expires")
    if role not in ROLES or expires not in EXPIRES:
        raise InvalidOption(f"A key has one of the roles {', '.join(_roles(page))}, and expires {', '.join(EXPIRES.values())}.")
    require_own_role(page.caller, role)
    made = await page.hf.keys.create(
        tenant=page.tenant, role=role, expires=expires or None, name=form.get("name") or None, by=page.actor
    )
    return await _keys(page, made)


@pages.post("/keys/revoke", "manage_keys")
async def revoke_key(page: PageRequest) -> Any:
    key = await page.hf.keys.get((await page.form()).get("key"), tenant=page.tenant)
    require_own_role(page.caller, key.role)
    named = f"{key.name} ({key.prefix}…)" if key.name else f"{key.prefix}…"
    sentence = f"Revokes the key {named} of role {key.role}, and ends every browser session that began with it."
    question = await page.confirmed("Revoke 1 key?", sentence, button="Revoke the key", danger=True)
    if question is not None:
        return question
    await page.hf.keys.revoke(key.id, tenant=page.tenant, by=page.actor)
    return await page.redirect_back("/keys", "revoked")
