"""Circuit breakers: jobs do not try a service that is down, they wait for it. One breaker per service, for all processes.

Closed, a breaker costs nothing: what was read of it holds for a second, and only failures are written. Open, those who ask are
sent away until the cool-down is over; then exactly one goes through as a probe, and what becomes of it decides.
"""

from __future__ import annotations

import asyncio
import logging
import random
import reprlib
import time
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.errors import Abort, BreakerOpen, ConfigError, HoldfastError, InvalidOption, Snooze, StorageError
from holdfast.finish import ArgumentsUnfit, ProcessDied, Refused, ResultUnusable, Waits, one_line
from holdfast.ids import new_run_id
from holdfast.people.common import checked_name, note
from holdfast.redact import redact
from holdfast.store.protocol import Store, Transaction

log = logging.getLogger("holdfast")

T = TypeVar("T")

CACHE_SECONDS = 1.0
PROBE_SECONDS = 30.0
"""A probe that is not heard of for so long has died, and the next one may try."""
HELD_SECONDS = 30.0
"""How often jobs ask about a breaker that is open until somebody closes it."""
REASON_CHARS_MAX = 500
_NOT_THE_SERVICE = (Abort, Snooze, Waits, Refused, ArgumentsUnfit, ResultUnusable, ProcessDied, HoldfastError)
"""What a task decides, what is wrong with the job itself, and what is our own."""
_rng = random.SystemRandom()


class Verdict(StrEnum):
    """What a run tells of the service that it needed."""

    WORKS = "works"
    FAILS = "fails"
    UNKNOWN = "unknown"


class Rules(msgspec.Struct, frozen=True):
    """When a breaker opens, and for how long."""

    name: str
    failures: int = 5
    window: float = 60.0
    cooldown: float = 30.0
    errors: tuple[type[BaseException], ...] = (Exception,)


class BreakerState(msgspec.Struct, kw_only=True):
    """A breaker as people see it."""

    name: str
    state: str
    """`closed`, `open`, or `half_open` while a probe is under way."""
    failures: int = 0
    reason: str | None = None
    opened_at: datetime | None = None
    opened_by: str | None = None
    """None: by failures."""
    until_at: datetime | None = None
    """When a probe may go. None while it is open: when somebody closes it."""


class Entry:
    """Somebody was let through."""

    __slots__ = ("is_inner", "keeper", "name", "token")

    def __init__(self, name: str, token: str, *, is_inner: bool = False) -> None:
        self.name = name
        self.token = token
        self.is_inner = is_inner
        """Within a run that has the probe already, which tells the verdict itself."""
        self.keeper: asyncio.Task[None] | None = None
        """Of a probe: says again and again that it is still at it."""


class _Known:
    """What was last read, and when."""

    __slots__ = ("at", "probe", "refreshing", "seconds", "state")

    def __init__(self, state: str, seconds: float | None = None, probe: str | None = None) -> None:
        self.state = state
        self.seconds = seconds
        """Until somebody may probe; None: not by itself."""
        self.probe = probe
        self.at = time.monotonic()
        self.refreshing = False


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


_entries: ContextVar[tuple[Entry, ...]] = ContextVar("holdfast_breaker_entries", default=())


class Breaker:
    """`hf.breaker("linear")`: use it as `async with`, or `with` in plain code; BreakerOpen is raised while it is open."""

    def __init__(self, breakers: Breakers, rules: Rules) -> None:
        self._breakers = breakers
        self.name = rules.name
        self.rules = rules

    async def __aenter__(self) -> Breaker:
        _entries.set((*_entries.get(), await self._breakers.enter(self.name, self._breakers.token())))
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await self._breakers.leave_block(self._pop(), error)

    def __enter__(self) -> Breaker:
        entry = self._breakers.call_sync(self._breakers.enter(self.name, self._breakers.token()))
        _entries.set((*_entries.get(), entry))
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._breakers.call_sync(self._breakers.leave_block(self._pop(), error))

    def _pop(self) -> Entry:
        *rest, entry = _entries.get()
        _entries.set(tuple(rest))
        return entry


class Breakers:
    """`hf.breakers`, and `hf.breaker` to use or define one."""

    def __init__(self, platform: Platform, run_id: ContextVar[Any]) -> None:
        self._platform = platform
        self._current_run = run_id
        self._rules: dict[str, Rules] = {}
        self._known: dict[str, _Known] = {}
        self.cache_seconds = CACHE_SECONDS
        self.call_sync = platform.call_sync

    def named(
        self,
        name: str,
        *,
        failures: int | None = None,
        window: float | None = None,
        cooldown: float | None = None,
        errors: Sequence[type[BaseException]] | None = None,
    ) -> Breaker:
        """The breaker of a service. It opens after `failures` (5) within `window` seconds (60) and lets a probe through after
        `cooldown` seconds (30). `errors`: only these count; else every exception that is not the job's own fault."""
        given = {"failures": failures, "window": window, "cooldown": cooldown, "errors": errors}
        said = {option: value for option, value in given.items() if value is not None}
        checked_service(name)
        if said or name not in self._rules:
            for option, value in said.items():
                try:
                    said[option] = _CHECKS[option](value)
                except ValueError as wrong:
                    raise ConfigError(f"breaker {name}: {option} must be {wrong}, not {reprlib.repr(value)}") from None
            self._rules[name] = Rules(name, **said)  # type: ignore[arg-type]
        return Breaker(self, self._rules[name])

    # -- people

    async def get(self, name: str) -> BreakerState:
        """Also of one that nobody has heard of: it is closed."""
        rows = await self._platform.store.shared("breaker_look", checked_service(name))
        return _state_of(rows[0]) if rows else BreakerState(name=name, state="closed")

    async def list(self) -> list[BreakerState]:
        """Those that ever failed or were set, and those of this program; by name."""
        known = {row["name"]: _state_of(row) for row in await self._platform.store.shared("breaker_list")}
        here = {name: BreakerState(name=name, state="closed") for name in self._rules}
        return [state for _, state in sorted({**here, **known}.items())]

    async def open(
        self, name: str, *, reason: str | None = None, seconds: float | None = None, by: str | None = None
    ) -> BreakerState:
        """Jobs that need this service wait: until somebody closes it, or a probe works after `seconds`."""
        checked_service(name)
        try:
            span = None if seconds is None else codec.seconds(0.0)(seconds)
        except ValueError as wrong:
            raise InvalidOption(f"seconds must be {wrong}, not {reprlib.repr(seconds)}.") from None
        why = None if reason is None else redact(checked_name("reason", reason))
        person = "somebody" if by is None else redact(checked_name("by", by))
        async with self._platform.transaction() as tx:
            await tx.shared("breaker_open", name, span, why, person)
            await note(tx, None, "breaker.opened", person, breaker=name, reason=why, seconds=span)
        self._known.pop(name, None)
        return await self.get(name)

    async def close(self, name: str, *, by: str | None = None) -> BreakerState:
        """Jobs go on, spread over a while."""
        person = None if by is None else redact(checked_name("by", by))
        async with self._platform.transaction() as tx:
            await tx.shared("breaker_close", checked_service(name))
            await note(tx, None, "breaker.closed", person, breaker=name)
        self._known.pop(name, None)
        return await self.get(name)

    # -- runs

    def token(self) -> str:
        """A probe belongs to the run, if there is one: what is nested in it passes too."""
        run = self._current_run.get(None)
        return new_run_id() if run is None else str(run.run_id)

    async def enter(self, name: str, token: str) -> Entry:
        """BreakerOpen, or leave must be told what came of it."""
        known = self._known.get(name)
        if known is not None and known.state == "closed" and (known.refreshing or self._is_fresh(known)):
            return Entry(name, token)
        known = await self._look(name, known)
        if known.state == "closed":
            return Entry(name, token)
        if known.probe == token:
            return Entry(name, token, is_inner=True)
        wait = None if known.seconds is None else known.seconds - (time.monotonic() - known.at)
        if wait is not None and wait <= 0:
            if await self._platform.store.shared("breaker_take_probe", name, token, PROBE_SECONDS):
                return self._probe(Entry(name, token))
            self._known.pop(name, None)
        raise self._refusal(name, wait)

    def _refusal(self, name: str, wait: float | None) -> BreakerOpen:
        """Those who wait come back one by one, over as long as the cool-down takes: not all in the moment when it closes."""
        spread = max(1.0, self._rules_of(name).cooldown)
        after = (HELD_SECONDS if wait is None else max(0.0, wait)) + _rng.random() * spread
        return BreakerOpen(f"The service {name} has failed too often, or was switched off; jobs that need it wait.", after)

    def verdict_of(
        self, name: str, error: BaseException | None, permanent: tuple[type[BaseException], ...] = ()
    ) -> tuple[Verdict, str | None]:
        """What an exception tells of the service. Nested blocks may see the same one: it counts once for each service."""
        if error is None:
            return Verdict.WORKS, None
        seen = getattr(error, "_holdfast_counted", ())
        is_service = isinstance(error, self._rules_of(name).errors) and not isinstance(error, (*_NOT_THE_SERVICE, *permanent))
        if not is_service or name in seen:
            return Verdict.UNKNOWN, None
        try:
            error._holdfast_counted = (*seen, name)  # type: ignore[attr-defined]
        except AttributeError:
            log.debug("An exception of %s takes no notes", type(error))
        return Verdict.FAILS, one_line(error)[:REASON_CHARS_MAX]

    async def leave_block(self, entry: Entry, error: BaseException | None) -> None:
        """A block within the probe leaves the verdict to the probe's run: an exception counts once, and must count there."""
        if not entry.is_inner:
            await self.leave(entry, *self.verdict_of(entry.name, error))

    async def leave(self, entry: Entry, verdict: Verdict, reason: str | None) -> None:
        if entry.keeper is None and verdict is not Verdict.FAILS:
            return
        try:
            if entry.keeper is not None:
                await self._end_probe(entry, entry.keeper, verdict, reason)
            elif (known := self._known.get(entry.name)) is None or known.state == "closed":
                await self._count_failure(entry.name, reason)
        except StorageError as error:
            log.warning("What a run tells of the service %s was not written: %s", entry.name, error)

    async def _count_failure(self, name: str, reason: str | None) -> None:
        rules = self._rules_of(name)
        async with self._platform.transaction() as tx:
            rows = await tx.shared("breaker_failed", name, rules.window, rules.failures, rules.cooldown, reason)
            if rows and rows[0]["state"] == "open":
                await note(tx, None, "breaker.opened", None, breaker=name, reason=reason, failures=rows[0]["failures"])
        if not rows:
            self._known.pop(name, None)
        elif rows[0]["state"] == "open":
            log.warning("The service %s failed %d times; jobs that need it wait: %s", name, rows[0]["failures"], reason)
            self._known[name] = _Known("open", rules.cooldown)

    # -- the probe

    def _probe(self, entry: Entry) -> Entry:
        self._known[entry.name] = _Known("half_open", PROBE_SECONDS, entry.token)
        entry.keeper = asyncio.create_task(self._keep(entry))
        return entry

    async def _keep(self, entry: Entry) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS / 3)
            try:
                if not await self._platform.store.shared("breaker_keep_probe", entry.name, entry.token, PROBE_SECONDS):
                    return
            except StorageError:
                log.debug("A probe of %s could not say that it lives", entry.name)

    async def _end_probe(self, entry: Entry, keeper: asyncio.Task[None], verdict: Verdict, reason: str | None) -> None:
        keeper.cancel()
        self._known.pop(entry.name, None)
        store = self._platform.store
        if verdict is Verdict.UNKNOWN:
            await store.shared("breaker_give_probe_back", entry.name, entry.token)
        elif verdict is Verdict.FAILS:
            await store.shared("breaker_probe_failed", entry.name, entry.token, self._rules_of(entry.name).cooldown, reason)
        else:
            async with self._platform.transaction() as tx:
                if await tx.shared("breaker_probe_worked", entry.name, entry.token):
                    await note(tx, None, "breaker.closed", None, breaker=entry.name, reason="the probe worked")

    # -- what is known here

    def _rules_of(self, name: str) -> Rules:
        return self._rules.get(name) or Rules(name)

    def _is_fresh(self, known: _Known) -> bool:
        return time.monotonic() - known.at < self.cache_seconds

    async def _look(self, name: str, known: _Known | None) -> _Known:
        if known is not None and self._is_fresh(known):
            return known
        if known is not None:
            known.refreshing = True  # the others go by what is known until this one has come back
        try:
            rows = await self._platform.store.shared("breaker_look", name)
        finally:
            if known is not None:
                known.refreshing = False
        self._known[name] = found = _known_of(rows[0]) if rows else _Known("closed")
        return found


def _known_of(row: dict[str, Any]) -> _Known:
    return _Known(row["state"], row["probe_seconds"] if row["state"] == "half_open" else row["seconds"], row["probe"])


def _state_of(row: dict[str, Any]) -> BreakerState:
    return BreakerState(**{name: row[name] for name in BreakerState.__struct_fields__})


def checked_service(name: object) -> str:
    try:
        return codec.label(name)
    except ValueError as wrong:
        raise InvalidOption(f"A service is named by {wrong}, not {reprlib.repr(name)}.") from None


_CHECKS: dict[str, codec.Check] = {
    "failures": codec.whole(1, 1_000_000),
    "window": codec.seconds(0.001),
    "cooldown": codec.seconds(0.001),
    "errors": codec.several(codec.exception_type, 1, 100),
}
