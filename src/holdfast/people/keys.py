"""API keys: random, shown once, stored hashed. They expire, can be revoked, and remember when they were last used."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import reprlib
import secrets
import time
from datetime import datetime, timedelta

import msgspec

from holdfast.errors import Conflict, InvalidOption, NotFound
from holdfast.people.cache import ShortCache
from holdfast.people.common import (
    Platform,
    checked_limit,
    checked_name,
    checked_name_or_none,
    member_role,
    note,
    within,
)
from holdfast.roles import ROLES, Role
from holdfast.store.protocol import Transaction

CACHE_SECONDS = 2.0
"""How long a revoked key may still be believed by another process."""
LAST_USED_SECONDS = 60.0
"""Using a key costs at most one write in this time."""
EXPIRES_SECONDS_MAX = 10 * 366 * 86_400.0
SHOWN_CHARS = 9
_SECRET = re.compile(r"hf_[A-Za-z0-9_-]{43}")
_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Key(msgspec.Struct, kw_only=True, frozen=True):
    """A key without its secret."""

    id: str
    tenant: str | None
    role: str
    name: str | None
    prefix: str
    """How the secret begins, to tell one from another."""
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None
    last_used_at: datetime | None


class NewKey(msgspec.Struct, kw_only=True, frozen=True):
    key: Key
    secret: str
    """Shown now and never again."""

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, secret='{self.key.prefix}…')"


class ValidKey(msgspec.Struct, frozen=True):
    id: str
    tenant: str | None
    role: Role


def hash_of(secret: str) -> str:
    """A secret of 256 random bits needs no slow hash: there is nothing to guess."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def looks_like_a_key(token: str) -> bool:
    return token.startswith("hf_")


class Keys:
    """`hf.keys`."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._cache: ShortCache[ValidKey] = ShortCache(CACHE_SECONDS)

    async def create(
        self,
        *,
        tenant: str | None = None,
        role: str | Role = Role.MEMBER,
        expires: str | float | timedelta | None = None,
        name: str | None = None,
        by: str | None = None,
        tx: Transaction | None = None,
    ) -> NewKey:
        """A key of one tenant, or one across all of them with `role="service"`. `expires`: `"90d"`, seconds, or None: never."""
        wanted = _checked_role(tenant, role)
        life = expires_seconds(expires)
        name, by = checked_name_or_none("name", name), checked_name_or_none("by", by)
        secret = "hf_" + secrets.token_urlsafe(32)
        key_id = f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(3)}"  # in the order of their making, for lists
        async with within(self._platform, tx) as inside:
            row = (
                await inside.shared(
                    "key_insert", key_id, tenant, wanted.word, name, hash_of(secret), secret[:SHOWN_CHARS], by, life
                )
            )[0]
            await note(inside, tenant, "key.created", by, key=key_id, role=wanted.word, name=name)
        return NewKey(key=Key(**row), secret=secret)

    async def list(self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 50) -> list[Key]:
        """Newest first; without a tenant those of all, the service's included. `cursor` is the id of the last one seen."""
        checked_name_or_none("tenant", tenant)
        checked_name_or_none("cursor", cursor)
        return [Key(**row) for row in await self._platform.store.shared("key_list", tenant, cursor, checked_limit(limit))]

    async def get(self, key_id: str, *, tenant: str | None = None) -> Key:
        """NotFound also for the key of another tenant than the one named."""
        found = await self._platform.store.shared("key_get", *_identity(key_id, tenant))
        if not found:
            raise _missing(key_id)
        return Key(**found[0])

    async def revoke(self, key_id: str, *, tenant: str | None = None, by: str | None = None) -> Key:
        """Ends the key at once here and within two seconds in other processes, and with it every browser session made by it."""
        identity, by = _identity(key_id, tenant), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            revoked = await tx.shared("key_revoke", *identity, by)
            if revoked:
                await note(tx, revoked[0]["tenant"], "key.revoked", by, key=key_id, name=revoked[0]["name"])
        self._cache.clear()
        if not revoked:
            await self.get(key_id, tenant=tenant)
            raise Conflict(f"The key {key_id} is revoked already.", "already_revoked")
        return Key(**revoked[0])

    async def valid(self, secret: str) -> ValidKey | None:
        """The key that this secret opens, if it is neither revoked nor expired. Notes that it was used."""
        if not _SECRET.fullmatch(secret):
            return None
        hashed = hash_of(secret)
        known = self._cache.get(hashed)
        if known is not None:
            return known
        found = await self._platform.store.shared("key_valid_by_hash", hashed)
        if not found or not hmac.compare_digest(found[0]["hash"], hashed):
            return None
        row = found[0]
        key = ValidKey(row["id"], row["tenant"], ROLES[row["role"]])
        self._cache.put(hashed, key, row["seconds_left"])
        if row["seconds_unused"] is None or row["seconds_unused"] >= LAST_USED_SECONDS:
            await self._platform.store.shared("key_touch", key.id, LAST_USED_SECONDS)
        return key

    async def still_valid(self, key_id: str) -> ValidKey | None:
        found = await self._platform.store.shared("key_valid_by_id", key_id)
        return ValidKey(found[0]["id"], found[0]["tenant"], ROLES[found[0]["role"]]) if found else None

    async def any_valid(self) -> bool:
        return bool(await self._platform.store.shared("key_valid_any"))

    def create_sync(
        self,
        *,
        tenant: str | None = None,
        role: str | Role = Role.MEMBER,
        expires: str | float | timedelta | None = None,
        name: str | None = None,
        by: str | None = None,
    ) -> NewKey:
        return self._platform.call_sync(self.create(tenant=tenant, role=role, expires=expires, name=name, by=by))

    def revoke_sync(self, key_id: str, *, by: str | None = None) -> Key:
        return self._platform.call_sync(self.revoke(key_id, by=by))


def expires_seconds(expires: str | float | timedelta | None) -> float | None:
    """`90d`, `12h`, `30m`, `45s`, `2w`, a number of seconds, a timedelta; None is never."""
    if expires is None:
        return None
    seconds: object = expires
    if isinstance(expires, timedelta):
        seconds = expires.total_seconds()
    elif isinstance(expires, str):
        match = _SPAN.fullmatch(expires.strip())
        seconds = int(match[1]) * _UNITS[match[2]] if match else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or math.isnan(seconds):
        raise InvalidOption(f"expires must be a time such as 90d, 12h or a number of seconds, not {reprlib.repr(expires)}.")
    if not 0 < seconds <= EXPIRES_SECONDS_MAX:
        raise InvalidOption(f"expires must lie between 1 second and 10 years, not {reprlib.repr(expires)}.")
    return float(seconds)


def _checked_role(tenant: str | None, role: str | Role) -> Role:
    if role in (Role.SERVICE, Role.SERVICE.word):
        if tenant is not None:
            raise InvalidOption("A service key works across all tenants: leave the tenant away, or choose another role.")
        return Role.SERVICE
    wanted = member_role(role)
    if tenant is None:
        raise InvalidOption('A key belongs to a tenant: say tenant="acme", or role="service" for a key across all of them.')
    checked_name("tenant", tenant)
    return wanted


def _identity(key_id: str, tenant: str | None) -> tuple[str, str | None]:
    try:
        return checked_name("id", key_id), checked_name_or_none("tenant", tenant)
    except InvalidOption:
        raise _missing(key_id) from None


def _missing(key_id: str) -> NotFound:
    return NotFound(f"There is no key {reprlib.repr(key_id)}.")
