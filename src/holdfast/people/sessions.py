"""Sessions of browsers, which showed a key once, and one-time login links. Both are random and stored hashed."""

from __future__ import annotations

import secrets

import msgspec

from holdfast.people.cache import ShortCache
from holdfast.people.common import Platform
from holdfast.people.keys import hash_of
from holdfast.roles import ROLES, Role

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 600.0
CACHE_SECONDS = 2.0
SECRET_CHARS_MAX = 100


class Session(msgspec.Struct, kw_only=True, frozen=True):
    """Whom a browser speaks for."""

    id: str
    """The hash of its secret: tells sessions apart and opens nothing."""
    tenant: str | None
    role: Role
    actor: str
    key_id: str | None


class Sessions:
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cache: ShortCache[Session] = ShortCache(CACHE_SECONDS)

    async def begin(self, *, tenant: str | None, role: Role, actor: str, key_id: str | None) -> str:
        """A new secret at every login. The session ends with its key, at logout, or after twelve hours."""
        await self._platform.store.shared("session_prune", 100)
        return await self._keep("session", tenant, role.word, actor, key_id, SESSION_SECONDS)

    async def make_link(self, *, tenant: str | None, role: Role, actor: str) -> str:
        """What `begin_by_link` takes, once and within ten minutes."""
        return await self._keep("link", tenant, role.word, actor, None, LINK_SECONDS)

    async def begin_by_link(self, token: str) -> str | None:
        if not _can_be_ours(token):
            return None
        taken = await self._platform.store.shared("session_take_link", hash_of(token))
        if not taken:
            return None
        return await self.begin(**{**taken[0], "role": ROLES[taken[0]["role"]]})

    async def valid(self, secret: str) -> Session | None:
        if not _can_be_ours(secret):
            return None
        hashed = hash_of(secret)
        return self._cache.get(hashed) or await self.still_valid(hashed)

    async def still_valid(self, session_id: str) -> Session | None:
        """Asks the database, whatever was known a moment ago."""
        found = await self._platform.store.shared("session_valid", session_id)
        if not found:
            return None
        row = found[0]
        session = Session(
            id=row["hash"], tenant=row["tenant"], role=ROLES[row["role"]], actor=row["actor"], key_id=row["key_id"]
        )
        self._cache.put(session_id, session, row["seconds_left"])
        return session

    async def end(self, secret: str) -> None:
        if _can_be_ours(secret):
            hashed = hash_of(secret)
            await self._platform.store.shared("session_delete", hashed)
            self._cache.forget(hashed)

    async def _keep(self, kind: str, tenant: str | None, role: str, actor: str, key_id: str | None, life: float) -> str:
        secret = secrets.token_urlsafe(32)
        await self._platform.store.shared("session_insert", hash_of(secret), kind, tenant, role, actor, key_id, life)
        return secret


def _can_be_ours(secret: str) -> bool:
    return 0 < len(secret) <= SECRET_CHARS_MAX
