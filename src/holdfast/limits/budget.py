"""What a tenant may spend in a month, by kind of spending; checked at the door and before each run.

A run reserves what it may spend at the most. A run starts while less than the cap is spent or reserved, so that any number of
runs at once overshoot by less than what one of them may spend. A reservation counts while its run holds its job: when
a run ends, or its worker dies and the job is taken back, there is nothing to give back.
"""

from __future__ import annotations

import reprlib
from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import BudgetExhausted, ConfigError, InvalidOption
from holdfast.people.common import checked_limit, checked_name, checked_name_or_none
from holdfast.redact import redact
from holdfast.store.protocol import CallerStatement, Claimed, Store, Transaction

T = TypeVar("T")

WARN_AT = 0.8
NEARLY_NOTHING = 1e-6
"""Sums of fractions come out a hair beside."""


class Budget(msgspec.Struct, kw_only=True):
    """One tenant's spending of one kind, in its present month."""

    tenant: str | None
    kind: str
    month: str
    """`2026-11`, by the tenant's time zone."""
    cents: float | None
    """What may be spent, with `extra`. None: as much as it wants."""
    spent: float
    late: float
    """The part of `spent` that came from runs which had lost their job: it was spent all the same."""
    reserved: float
    """What running jobs may still spend of what they reserved."""
    extra: float
    """Added for this month alone, by an override."""
    by_plan: bool
    """Whether the cap is the plan's."""
    timezone: str
    resets_at: datetime

    @property
    def used_up(self) -> bool:
        return self.cents is not None and self.spent >= self.cents - NEARLY_NOTHING

    @property
    def status(self) -> str:
        """`no_cap`, `ok`, `warning` from 80 % on, `used_up`."""
        if self.cents is None:
            return "no_cap"
        return "used_up" if self.used_up else "warning" if self.spent >= WARN_AT * self.cents - NEARLY_NOTHING else "ok"

    def as_dict(self) -> dict[str, Any]:
        return {**msgspec.to_builtins(self), "status": self.status}


class Cap(msgspec.Struct, frozen=True):
    """What holds for a tenant and kind now."""

    tenant: str
    kind: str
    cents: float | None
    by_plan: bool
    timezone: str
    month: str
    ends_at: datetime
    seconds_left: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tenant, self.kind, self.month

    def most(self, row: Mapping[str, Any]) -> float | None:
        return None if self.cents is None else max(0.0, self.cents + row["extra"])


class Refusal(msgspec.Struct, frozen=True):
    used_up: bool
    """False: what is left is reserved by runs that have not ended."""
    message: str
    seconds: float
    """Until the month turns."""


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Budgets:
    """`hf.budgets`. A tenant without a cap of its own has its plan's; without either it may spend what it wants. The tenant
    None stands for jobs that have none."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.refuses = False
        """Whether a task of this program is refused at the door: without one, enqueueing asks nothing."""

    # -- people set and look

    async def set(self, tenant: str | None, kind: str, *, cents: float | None, by: str | None = None) -> Budget:
        """A tenant's own cap per month, from now on; None takes it away, so that the plan's holds again."""
        who = _who(tenant)
        await self._set(f"tenant:{who}", who, checked_kind(kind), cents, by, {"kind": kind})
        return await self.get(tenant, kind)

    async def set_plan(self, plan: str, kind: str, *, cents: float | None, by: str | None = None) -> None:
        """A cap for each tenant of this plan that has none of its own; None takes it away."""
        names = sorted(known.name for known in await self._platform.store.plan_list())
        if plan not in names:
            raise InvalidOption(f"There is no plan called {reprlib.repr(plan)}; the plans are {', '.join(names)}.")
        await self._set(f"plan:{plan}", None, checked_kind(kind), cents, by, {"kind": kind, "plan": plan})

    async def _set(
        self, subject: str, who: str | None, kind: str, cents: float | None, by: str | None, told: dict[str, Any]
    ) -> None:
        most = None if cents is None else checked_cents("cents", cents)
        person = _person(by)
        async with self._platform.transaction() as tx:
            if most is None:
                await tx.shared("budget_unset", subject, kind)
            else:
                await tx.shared("budget_set", subject, kind, most, person)
            await tell(tx, who or None, "budget.changed", person, {**told, "cents": most})
            if who is not None:
                await notice(tx, cap := await look(tx, who, kind), await add(tx, cap))
        await self._let_go(who)

    async def override(
        self, tenant: str | None, kind: str, *, cents: float, reason: str | None = None, by: str | None = None
    ) -> Budget:
        """So many cents more for this month alone (or less, if negative); jobs that were held go on."""
        who, kind, person = _who(tenant), checked_kind(kind), _person(by)
        more = -checked_cents("cents", -cents) if _is_negative(cents) else checked_cents("cents", cents)
        why = None if reason is None else redact(checked_name("reason", reason))
        async with self._platform.transaction() as tx:
            cap = await look(tx, who, kind)
            if cap.cents is None:
                raise InvalidOption(f"{_of(tenant)} has no cap on {kind}, so there is nothing to raise; set one first.")
            row = await add(tx, cap, extra=more)
            told = {"kind": kind, "month": cap.month, "cents": money(more), "reason": why}
            await tell(tx, tenant, "budget.overridden", person, told)
            await notice(tx, cap, row)
        await self._let_go(who)
        return await self.get(tenant, kind)

    async def get(self, tenant: str | None, kind: str) -> Budget:
        """Also of a tenant that has no cap, or has spent nothing."""
        cap = await look(self._platform.store, _who(tenant), checked_kind(kind))
        rows = await self._platform.store.shared("budget_month", *cap.key)
        row = rows[0] if rows else {"spent": 0.0, "late": 0.0, "extra": 0.0}
        reserved = await self._platform.store.shared("budget_reserved", cap.tenant, cap.kind)
        most = cap.most(row)
        return Budget(
            tenant=cap.tenant or None,
            kind=cap.kind,
            month=cap.month,
            cents=None if most is None else money(most),
            spent=money(row["spent"]),
            late=money(row["late"]),
            reserved=money(reserved[0]["cents"]),
            extra=money(row["extra"]),
            by_plan=cap.by_plan,
            timezone=cap.timezone,
            resets_at=cap.ends_at,
        )

    async def runs(self, tenant: str | None, kind: str, *, limit: int = 50) -> list[dict[str, Any]]:
        """Who spent it: job, run and cents, the newest first."""
        found = await self._platform.store.shared("budget_runs", _who(tenant), checked_kind(kind), checked_limit(limit))
        return [{**row, **{name: money(row[name]) for name in ("reserved", "spent", "late")}} for row in found]

    async def list(
        self, tenant: str | None = None, *, after: tuple[str | None, str] | None = None, limit: int = 50
    ) -> list[Budget]:
        """By tenant and kind: those with a cap, and those that have spent something this month. `after` names the last one
        seen."""
        checked_limit(limit)
        checked_name_or_none("tenant", tenant)
        last = (None, None) if after is None else (after[0] or "", after[1])
        found = await self._platform.store.shared("budget_names", tenant, *last, limit)
        return [await self.get(row["tenant"] or None, row["kind"]) for row in found]

    async def plans(self) -> dict[str, dict[str, float]]:
        """Plan -> kind -> cents."""
        caps: dict[str, dict[str, float]] = {}
        for row in await self._platform.store.shared("budget_plans"):
            caps.setdefault(row["plan"], {})[row["kind"]] = money(row["cents"])
        return caps

    def set_sync(self, tenant: str | None, kind: str, *, cents: float | None, by: str | None = None) -> Budget:
        return self._platform.call_sync(self.set(tenant, kind, cents=cents, by=by))

    def get_sync(self, tenant: str | None, kind: str) -> Budget:
        return self._platform.call_sync(self.get(tenant, kind))

    async def _let_go(self, who: str | None) -> None:
        """Held jobs ask again. Not in the transaction of the change: rows of jobs are locked before any others."""
        store = self._platform.store
        if await (store.shared("budget_release", who) if who is not None else store.shared("budget_release_all")):
            await store.wake()

    # -- jobs ask

    def door_statement(self, tenant: str | None, kind: str) -> CallerStatement:
        """For the caller's own connection; its rows are (cents, spent, seconds)."""
        return self._platform.store.shared_statement("budget_used_up", tenant or "", kind)

    async def reserve(self, claimed: Claimed, kind: str, most: float) -> Refusal | None:
        """None: this run may start, and `most` cents are reserved for it."""
        who = claimed.tenant or ""
        if (await look(self._platform.store, who, kind)).cents is None:
            return None
        async with self._platform.transaction() as tx:
            cap = await look(tx, who, kind)
            row = await add(tx, cap)  # from here on nobody else reserves or spends of this month
            limit = cap.most(row)
            await tx.shared("budget_close_ended", who, kind)
            reserved = (await tx.shared("budget_reserved", who, kind))[0]["cents"]
            if limit is None or row["spent"] + reserved < limit - NEARLY_NOTHING:
                await tx.shared("budget_reserve", claimed.run_id, kind, claimed.id, who, most)
                return None
        if row["spent"] < limit - NEARLY_NOTHING:
            told = f"What is left of the budget {kind} of {_of(claimed.tenant)} is reserved by runs that have not ended."
            return Refusal(False, told, cap.seconds_left)
        return Refusal(True, used_up(claimed.tenant, kind, row["spent"], limit, cap), cap.seconds_left)


def refuse_if_used_up(tenant: str | None, kind: str, rows: Any) -> None:
    """`rows` as `door_statement` gives them."""
    for cents, spent, seconds in rows:
        left = None if seconds is None else float(seconds)
        raise BudgetExhausted(used_up(tenant, kind, float(spent), float(cents)), left)


def used_up(tenant: str | None, kind: str, spent: float, most: float, cap: Cap | None = None) -> str:
    until = f"{cap.ends_at.astimezone(zone_named(cap.timezone)):%Y-%m-%d %H:%M} {cap.timezone}" if cap else "the month turns"
    return f"The budget {kind} of {_of(tenant)} is used up until {until}: {money(spent):,} of {money(most):,} cents are spent."


# -- one month ---------------------------------------------------------------------------------------------------------


async def look(database: Store | Transaction, tenant: str, kind: str) -> Cap:
    row = (await database.shared("budget_look", tenant, kind))[0]
    month, ends_at = month_of(row["now_at"], row["timezone"])
    own, of_plan = row["own_cents"], row["plan_cents"]
    cents, left = (of_plan if own is None else own), (ends_at - row["now_at"]).total_seconds()
    return Cap(tenant, kind, cents, own is None and of_plan is not None, row["timezone"], month, ends_at, left)


async def add(tx: Transaction, cap: Cap, *, spent: float = 0.0, late: float = 0.0, extra: float = 0.0) -> dict[str, Any]:
    """The month's row as it is then; it stays locked until the transaction ends."""
    return (await tx.shared("budget_add", *cap.key, cap.ends_at, spent, late, extra))[0]


async def notice(tx: Transaction, cap: Cap, row: Mapping[str, Any]) -> None:
    """An event at 80 % and one at 100 %, each once a month; once more only if the cap was raised above it in between."""
    most = cap.most(row)
    warned = most is not None and row["spent"] >= WARN_AT * most - NEARLY_NOTHING
    opened = most is not None and row["spent"] >= most - NEARLY_NOTHING
    if (row["warned_at"] is not None, row["opened_at"] is not None) == (warned, opened):
        return
    await tx.shared("budget_mark", *cap.key, warned, opened)
    told = {"kind": cap.kind, "month": cap.month, "spent": money(row["spent"]), "cents": most and money(most)}
    for reached, known, event in ((warned, "warned_at", "budget.warning"), (opened, "opened_at", "budget.exhausted")):
        if reached and row[known] is None:
            await tell(tx, cap.tenant or None, event, None, told)


async def tell(tx: Transaction, tenant: str | None, event: str, by: str | None, data: dict[str, Any]) -> None:
    await tx.shared("audit_write", tenant, event, by, msgspec.json.encode(data).decode())


def month_of(now: datetime, timezone: str) -> tuple[str, datetime]:
    """The month there, and when it ends: the next one begins at midnight there, whatever the clocks did in between."""
    zone = zone_named(timezone)
    here = now.astimezone(zone)
    year, month = (here.year + 1, 1) if here.month == 12 else (here.year, here.month + 1)
    return f"{here:%Y-%m}", datetime(year, month, 1, tzinfo=zone).astimezone(UTC)


def zone_named(name: str) -> Any:
    import zoneinfo  # late: few need it

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            f"This host knows no time zone called {reprlib.repr(name)}; use a name such as Europe/Paris, or install tzdata."
        ) from None


def money(cents: float) -> float:
    """Without the hair that sums of fractions come out beside; whole where it is whole."""
    near = round(float(cents), 6)
    return int(near) if near.is_integer() else near


def checked_kind(kind: object) -> str:
    try:
        return codec.label(kind)
    except ValueError as wrong:
        raise InvalidOption(f"kind must be {wrong}, not {reprlib.repr(kind)}.") from None


def checked_cents(what: str, value: object) -> float:
    try:
        return codec.cents(value)
    except ValueError as wrong:
        raise InvalidOption(f"{what} must be {wrong}, not {reprlib.repr(value)}.") from None


def _is_negative(value: object) -> bool:
    return isinstance(value, int | float) and value < 0


def _who(tenant: str | None) -> str:
    return checked_name_or_none("tenant", tenant) or ""


def _of(tenant: str | None) -> str:
    return "jobs without a tenant" if tenant is None else f"tenant {tenant}"


def _person(by: str | None) -> str | None:
    return None if by is None else redact(checked_name("by", by))
