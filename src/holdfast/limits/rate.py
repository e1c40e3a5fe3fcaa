"""How often something may be done: named limits per user, key and tenant, counted in the database for all processes."""

from __future__ import annotations

import math
import os
import re
import reprlib
import time
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import ConfigError, InvalidOption, RateLimited
from holdfast.settings import Settings
from holdfast.store.protocol import Store, Transaction

T = TypeVar("T")
Algorithm = Literal["window", "smooth"]
Subjects = Mapping[str, str | None]
"""`user`, `key`, `tenant` -> who."""

KINDS = ("user", "key", "tenant", "total")
"""Also the order in which rows are locked: narrow ones first, so that nobody waits in a circle."""
MOST_MAX = 1_000_000_000
SUBJECT_CHARS_MAX = 500
_NAME = re.compile(r"[a-z][a-z0-9_]{0,49}")
_UNITS = {1.0: "SECOND", 60.0: "MINUTE", 3600.0: "HOUR", 86_400.0: "DAY"}
_IN_ENVIRONMENT = {"user": "USER", "key": "KEY", "tenant": "ORG", "total": "TOTAL"}
_most = codec.whole(1, MOST_MAX)
_who = codec.text(SUBJECT_CHARS_MAX)


class Limit(msgspec.Struct, frozen=True):
    name: str
    most: dict[str, int]
    """Kind of subject -> how many."""
    per: float
    algorithm: Algorithm

    @property
    def statement(self) -> str:
        return "rate_take_smooth" if self.algorithm == "smooth" else "rate_take_window"


API_BLOCKS_PER_MINUTE = 60


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking. Of several subjects the one that refused speaks, or the one with the least left."""

    allowed: bool
    name: str
    kind: str
    """Whose limit this is: `user`, `key`, `tenant` or `total`."""
    limit: int
    remaining: int
    reset: float
    """Seconds until all of it is free again."""
    retry_after: float = 0.0
    """Seconds until one more is allowed; 0 if this one was."""

    @property
    def headers(self) -> dict[str, str]:
        """For HTTP. The reset is a Unix time, as most clients expect it."""
        shown = {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(math.ceil(time.time() + self.reset)),
        }
        return shown if self.allowed else {"Retry-After": str(max(1, math.ceil(self.retry_after))), **shown}

    def require(self) -> Taken:
        """Itself, or RateLimited."""
        if self.allowed:
            return self
        whom = "in all" if self.kind == "total" else f"per {self.kind}"
        raise RateLimited(
            f"The rate limit {self.name} ({self.limit} {whom}) is used up; try again in {math.ceil(self.retry_after)} s.",
            self.retry_after,
            self.headers,
        )


class _Refused(Exception):
    """Rolls back what the other subjects were charged; it never reaches anybody."""

    def __init__(self, taken: Taken) -> None:
        super().__init__()
        self.taken = taken


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Rates:
    """`hf.rate`, and `hf.limit` to define one."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.limits: dict[str, Limit] = {}
        self.define("ai_intake", user=30, tenant=200)
        self.define("linear_export", user=60, tenant=300)
        self.api_block = max(1, platform.settings.api_rate // API_BLOCKS_PER_MINUTE)
        """How many requests to our own API are taken at a time."""
        if platform.settings.api_rate:
            self.define("api", user=platform.settings.api_rate // self.api_block, per=60, algorithm="smooth")

    def define(
        self,
        name: str,
        *,
        user: int | None = None,
        key: int | None = None,
        tenant: int | None = None,
        total: int | None = None,
        per: float = 3600,
        algorithm: Algorithm = "window",
    ) -> Limit:
        """So many per user, per API key, per tenant and in all, in `per` seconds. The environment has the last word: for a
        limit by the hour `RL_<NAME>_USER_PER_HOUR`, and `KEY`, `ORG` and `TOTAL` in its place."""
        label = f"limit {reprlib.repr(name)}"
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError(f"{label}: the name of a limit is a-z, 0-9 and _ , up to 50 characters, beginning with a letter")
        if algorithm not in ("window", "smooth"):
            raise ConfigError(f"{label}: algorithm must be 'window' or 'smooth', not {reprlib.repr(algorithm)}")
        seconds = _checked(label, "per", per, codec.seconds(0.001), ConfigError)
        given = {"user": user, "key": key, "tenant": tenant, "total": total}
        most = {}
        for kind in KINDS:
            number = _from_environment(name, kind, seconds)
            if number is None and given[kind] is not None:
                number = _checked(label, kind, given[kind], _most, ConfigError)
            if number is not None:
                most[kind] = number
        if not most:
            raise ConfigError(f"{label}: say how many, with user=, key=, tenant= or total=")
        self.limits[name] = limit = Limit(name, most, seconds, algorithm)
        return limit

    def named(self, name: str) -> Limit:
        try:
            return self.limits[name]
        except KeyError:
            known = ", ".join(sorted(self.limits))
            raise ConfigError(
                f"There is no limit called {reprlib.repr(name)}; define it with hf.limit. Known: {known}."
            ) from None

    async def take(self, name: str, *, user: str | None = None, key: str | None = None, tenant: str | None = None) -> Taken:
        """Take one for each of them, or for none if one has none left. It does not raise for that: see `Taken.require`."""
        limit = self.named(name)
        taken = await self._take(limit, {"user": user, "key": key, "tenant": tenant})
        if taken is None:
            kinds = ", ".join(f"{kind}=" for kind in limit.most)
            raise InvalidOption(f"limit {name}: say who takes, with {kinds}")
        return taken

    def take_sync(self, name: str, *, user: str | None = None, key: str | None = None, tenant: str | None = None) -> Taken:
        return self._platform.call_sync(self.take(name, user=user, key=key, tenant=tenant))

    async def take_for_job(self, name: str, job_id: str) -> Taken | None:
        """For the job's actor and tenant. None if it has neither, so that there is nobody to count for."""
        limit = self.named(name)
        job = await self._platform.store.job_get(job_id)
        return await self._take(limit, {"user": job.actor, "tenant": job.tenant})

    async def _take(self, limit: Limit, who: Subjects) -> Taken | None:
        subjects = _subjects(limit, who)
        if len(subjects) < 2:
            for kind, subject in subjects:
                return await _take_one(self._platform.store, limit, kind, subject)
            return None
        try:
            async with self._platform.transaction() as tx:
                taken = []
                for kind, subject in subjects:
                    taken.append(await _take_one(tx, limit, kind, subject))
                    if not taken[-1].allowed:
                        raise _Refused(taken[-1])
        except _Refused as refused:
            return refused.taken
        return min(taken, key=lambda one: one.remaining)


def _subjects(limit: Limit, who: Subjects) -> list[tuple[str, str]]:
    found = []
    for kind in KINDS:
        subject = "" if kind == "total" else who.get(kind)
        if kind in limit.most and subject is not None:
            if kind != "total":
                _checked(f"limit {limit.name}", kind, subject, _who, InvalidOption)
            found.append((kind, subject))
    return found


async def _take_one(database: Store | Transaction, limit: Limit, kind: str, subject: str) -> Taken:
    most, row = limit.most[kind], f"{kind}:{subject}"
    granted = await database.shared(limit.statement, limit.name, row, most, limit.per)
    if granted:
        used = granted[0]["used"]
        reset = used * limit.per / most if limit.algorithm == "smooth" else granted[0]["seconds"]
        left = max(0, math.floor(most - used + 1e-6))
        return Taken(allowed=True, name=limit.name, kind=kind, limit=most, remaining=left, reset=reset)
    found = await database.shared("rate_look", limit.name, row)
    reset, wait = _waits(limit, most, found[0]) if found else (0.0, 0.0)
    return Taken(
        allowed=False, name=limit.name, kind=kind, limit=most, remaining=0, reset=max(0.0, reset), retry_after=max(0.001, wait)
    )


def _waits(limit: Limit, most: int, row: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds until it is as new, and until there is one more."""
    if limit.algorithm == "window":
        return row["seconds"], row["seconds"]
    seconds_each = limit.per / most
    used = row["used"] - row["age"] / seconds_each
    return used * seconds_each, (used - most + 1) * seconds_each


def _from_environment(name: str, kind: str, per: float) -> int | None:
    if per not in _UNITS:
        return None
    variable = f"RL_{name.upper()}_{_IN_ENVIRONMENT[kind]}_PER_{_UNITS[per]}"
    for found in (f"HOLDFAST_{variable}", variable):
        text = os.environ.get(found, "").strip()
        if text:
            number = int(text) if re.fullmatch(r"[0-9]{1,12}", text) else text
            return int(_checked(found, "it", number, _most, ConfigError))
    return None


def _checked(label: str, name: str, value: Any, check: codec.Check, error: type[ConfigError] | type[InvalidOption]) -> Any:
    try:
        return check(value)
    except ValueError as wrong:
        raise error(f"{label}: {name} must be {wrong}, not {reprlib.repr(value)}") from None
