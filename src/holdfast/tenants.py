"""Tenants, plans and queues: who may run how much at once, and what is paused. The limits themselves live in the claim."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.errors import ConfigError, InvalidOption
from holdfast.limits.budget import zone_named
from holdfast.redact import redact
from holdfast.store.protocol import UNCHANGED, Plan, Queue, Store, Tenant, Unchanged

if TYPE_CHECKING:
    from holdfast.tenant_data import Erased

T = TypeVar("T")

NAME_CHARS_MAX = 200
NUMBER_MAX = 2**31 - 1
LIST_MAX = 200


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Tenants:
    """`hf.tenants`. A tenant that nobody has set counts as one on the free plan."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def set(
        self,
        tenant: str,
        *,
        plan: str | Unchanged = UNCHANGED,
        limit: int | Unchanged | None = UNCHANGED,
        queue_depth: int | Unchanged | None = UNCHANGED,
        timezone: str | Unchanged = UNCHANGED,
        by: str | None = None,
    ) -> Tenant:
        """Change a tenant's plan or its own numbers (None: as the plan says), from the next claim on; or the time zone by which
        its months are counted."""
        _check_name("tenant", tenant)
        _check_number("limit", limit)
        _check_number("queue_depth", queue_depth)
        if timezone is not UNCHANGED:
            _check_timezone(timezone)
        if plan is not UNCHANGED:
            names = sorted(known.name for known in await self._platform.store.plan_list())
            if plan not in names:
                raise InvalidOption(f"There is no plan called {plan!r:.50}; the plans are {', '.join(names)}.")
        changes: dict[str, Any] = {"plan": plan, "max_running": limit, "queue_depth": queue_depth}
        return await self._platform.store.tenant_set(tenant, **changes, timezone=timezone, by=_person(by))

    async def get(self, tenant: str) -> Tenant:
        _check_name("tenant", tenant)
        return await self._platform.store.tenant_get(tenant)

    async def list(self, *, after: str | None = None, limit: int = 50) -> list[Tenant]:
        """Those that were set, by name."""
        if not isinstance(limit, int) or not 1 <= limit <= LIST_MAX:
            raise InvalidOption(f"limit must lie between 1 and {LIST_MAX}, not {limit!r:.50}.")
        if after is not None:
            _check_name("tenant", after)
        return await self._platform.store.tenant_list(after=after, limit=limit)

    async def pause(self, tenant: str, *, by: str | None = None) -> Tenant:
        """Nothing of this tenant is claimed any more; what runs goes on."""
        _check_name("tenant", tenant)
        return await self._platform.store.tenant_pause(tenant, paused=True, by=_person(by))

    async def resume(self, tenant: str, *, by: str | None = None) -> Tenant:
        _check_name("tenant", tenant)
        return await self._platform.store.tenant_pause(tenant, paused=False, by=_person(by))

    async def export(self, tenant: str) -> AsyncIterator[dict[str, Any]]:
        """All that is stored of this tenant, row after row: `{"table": "jobs", "row": {…}}`. Secrets are left out."""
        _check_name("tenant", tenant)
        from holdfast.tenant_data import export

        async for row in export(self._platform.store, tenant):
            yield row

    async def erase(self, tenant: str, *, by: str | None = None) -> Erased:
        """Delete all that is stored of this tenant; JobConflict while one of its jobs runs. There is no way back."""
        _check_name("tenant", tenant)
        from holdfast.tenant_data import erase

        return await erase(self._platform.store, tenant, _person(by))

    def set_sync(self, tenant: str, **changes: Any) -> Tenant:
        return self._platform.call_sync(self.set(tenant, **changes))

    def get_sync(self, tenant: str) -> Tenant:
        return self._platform.call_sync(self.get(tenant))


class Plans:
    """`hf.plans`. There are free (1 running), starter (3) and pro (10) to begin with."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def set(self, name: str, *, running: int, queue_depth: int, weight: int = 1, by: str | None = None) -> Plan:
        """`weight`: how many jobs a tenant of this plan gets at each turn, where tenants compete."""
        _check_name("plan", name)
        _check_number("running", running, or_none=False)
        _check_number("queue_depth", queue_depth, or_none=False)
        if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= 100:
            raise InvalidOption(f"weight must be a whole number from 1 to 100, not {weight!r}.")
        return await self._platform.store.plan_set(Plan(name, running, queue_depth, weight), by=_person(by))

    async def list(self) -> list[Plan]:
        return await self._platform.store.plan_list()


class Queues:
    """`hf.queues`. A queue that nobody has set has no limit."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    async def set(self, queue: str, *, limit: int | None, by: str | None = None) -> Queue:
        """At most `limit` jobs of this queue run at once, whatever the number of workers; None: no limit."""
        _check_name("queue", queue)
        _check_number("limit", limit)
        return await self._platform.store.queue_set(queue, max_running=limit, by=_person(by))

    async def get(self, queue: str) -> Queue:
        _check_name("queue", queue)
        return await self._platform.store.queue_get(queue)

    async def list(self) -> list[Queue]:
        """Those that were set, by name."""
        return await self._platform.store.queue_list()

    async def pause(self, queue: str, *, by: str | None = None) -> Queue:
        _check_name("queue", queue)
        return await self._platform.store.queue_pause(queue, paused=True, by=_person(by))

    async def resume(self, queue: str, *, by: str | None = None) -> Queue:
        _check_name("queue", queue)
        return await self._platform.store.queue_pause(queue, paused=False, by=_person(by))


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS_MAX or "\x00" in name:
        raise InvalidOption(f"A {what} is named by 1 to {NAME_CHARS_MAX} characters without NUL, not {name!r:.50}.")


def _check_timezone(name: object) -> None:
    try:
        zone_named(name if isinstance(name, str) else "")
    except ConfigError:
        raise InvalidOption(f"timezone must be a name such as Europe/Paris, not {name!r:.50}.") from None


def _person(by: str | None) -> str | None:
    """Who did it, for the record."""
    if by is None:
        return None
    _check_name("person", by)
    return redact(by)


def _check_number(what: str, number: object, *, or_none: bool = True) -> None:
    if number is UNCHANGED or (number is None and or_none):
        return
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= NUMBER_MAX:
        none = ", or None," if or_none else ""
        raise InvalidOption(f"{what} must be a whole number of 0 or more{none} not {number!r:.50}.")
