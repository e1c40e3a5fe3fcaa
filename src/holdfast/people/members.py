"""Members of organizations (the tenants) and their roles. An organization that has an owner always keeps one."""

from __future__ import annotations

import reprlib
from datetime import datetime

import msgspec

from holdfast.errors import Conflict, NotFound
from holdfast.people.cache import ShortCache
from holdfast.people.common import (
    LIST_MAX,
    Platform,
    checked_limit,
    checked_name,
    checked_name_or_none,
    member_role,
    note,
    within,
)
from holdfast.roles import MEMBER_ROLES, Role
from holdfast.store.protocol import Transaction

CACHE_SECONDS = 2.0
"""How long another process may still believe a role that was taken away."""


class Member(msgspec.Struct, kw_only=True, frozen=True):
    tenant: str
    user_id: str
    """As the login calls him: the `sub` of his token."""
    role: str
    added_at: datetime
    added_by: str | None


class Members:
    """`hf.members`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cache: ShortCache[dict[str, Role]] = ShortCache(CACHE_SECONDS)

    async def add(
        self,
        tenant: str,
        user_id: str,
        role: str | Role = Role.MEMBER,
        *,
        by: str | None = None,
        tx: Transaction | None = None,
    ) -> Member:
        who, wanted, by = _who(tenant, user_id), member_role(role), checked_name_or_none("by", by)
        async with within(self._platform, tx) as inside:
            added = await inside.shared("member_insert", *who, wanted.word, by)
            if not added:
                raise Conflict(f"{user_id} is a member of {tenant} already; his role can be changed.", "member_exists")
            await note(inside, tenant, "member.added", by, user=user_id, role=wanted.word)
        self._cache.forget(user_id)
        return Member(**added[0])

    async def list(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Member]:
        """By user id; `cursor` is that of the last one seen."""
        checked_name("tenant", tenant)
        checked_name_or_none("cursor", cursor)
        found = await self._platform.store.shared("member_list", tenant, cursor, checked_limit(limit))
        return [Member(**row) for row in found]

    async def get(self, tenant: str, user_id: str) -> Member:
        found = await self._platform.store.shared("member_get", *_who(tenant, user_id))
        if not found:
            raise _missing(tenant, user_id)
        return Member(**found[0])

    async def set_role(self, tenant: str, user_id: str, role: str | Role, *, by: str | None = None) -> Member:
        """Conflict `last_owner` where nobody would own the organization any more."""
        who, wanted, by = _who(tenant, user_id), member_role(role), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            before = await self._before_change(tx, *who, stays_owner=wanted is Role.OWNER)
            changed = await tx.shared("member_set_role", *who, wanted.word)
            if before.role != wanted.word:
                await note(tx, tenant, "member.role_changed", by, user=user_id, role=wanted.word, before=before.role)
        self._cache.forget(user_id)
        return Member(**changed[0])

    async def remove(self, tenant: str, user_id: str, *, by: str | None = None) -> Member:
        """Conflict `last_owner` where nobody would own the organization any more."""
        who, by = _who(tenant, user_id), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            before = await self._before_change(tx, *who, stays_owner=False)
            await tx.shared("member_delete", *who)
            await note(tx, tenant, "member.removed", by, user=user_id, role=before.role)
        self._cache.forget(user_id)
        return before

    async def _before_change(self, tx: Transaction, tenant: str, user_id: str, *, stays_owner: bool) -> Member:
        # Locks the owners' rows: of two that are demoted at the same time, the second one sees that he is the last.
        owners = {row["user_id"] for row in await tx.shared("member_lock_owners", tenant)}
        found = await tx.shared("member_get", tenant, user_id)
        if not found:
            raise _missing(tenant, user_id)
        if owners == {user_id} and not stays_owner:
            raise Conflict(f"{user_id} is the last owner of {tenant}; make somebody else an owner first.", "last_owner")
        return Member(**found[0])

    async def roles_of(self, user_id: str) -> dict[str, Role]:
        """Tenant -> role, for at most 200 organizations."""
        known = self._cache.get(user_id)
        if known is None:
            found = await self._platform.store.shared("member_roles", user_id, LIST_MAX)
            known = {row["tenant"]: MEMBER_ROLES[row["role"]] for row in found}
            self._cache.put(user_id, known)
        return known

    def add_sync(self, tenant: str, user_id: str, role: str | Role = Role.MEMBER, *, by: str | None = None) -> Member:
        return self._platform.call_sync(self.add(tenant, user_id, role, by=by))

    def remove_sync(self, tenant: str, user_id: str, *, by: str | None = None) -> Member:
        return self._platform.call_sync(self.remove(tenant, user_id, by=by))


def _who(tenant: str, user_id: str) -> tuple[str, str]:
    return checked_name("tenant", tenant), checked_name("user_id", user_id)


def _missing(tenant: str, user_id: str) -> NotFound:
    return NotFound(f"{tenant} has no member {reprlib.repr(user_id)}.")
