"""Schedules: a job at each tick of a clock, exactly one whatever the number of processes. `@hf.every`, and `hf.schedules`.

A schedule is a row with its next tick. Whoever sees it fall due moves the row on and enqueues the job in one transaction,
guarded by the row's revision: of all who try, one succeeds. The loop that looks is processes/scheduler.py.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.console import CONTROL
from holdfast.errors import ConfigError, Conflict, HoldfastError, InvalidOption, NotFound
from holdfast.ids import new_job_id
from holdfast.job import Job
from holdfast.options import job_options
from holdfast.people.common import checked_limit, checked_name, checked_name_or_none, note, within
from holdfast.store.protocol import Store, Transaction
from holdfast.task import JobSpec, Task, TaskMaker
from holdfast.ticks import Missed, When, when_of

T = TypeVar("T")

SYSTEM = "holdfast."
"""How the names of the system's own schedules begin."""


class Schedule(msgspec.Struct, kw_only=True, frozen=True):
    name: str
    tenant: str | None
    task: str | None
    """None: the system's own work."""
    args: dict[str, Any]
    cron: str | None
    seconds: float | None
    tz: str
    missed: Missed
    declared: bool
    """Whether it stands in code, as `@hf.every`."""
    next_at: datetime
    paused_at: datetime | None
    paused_by: str | None
    last_at: datetime | None
    """The last tick that was kept, or run now."""
    last_job_id: str | None
    last_state: str | None
    """Of that job; None: it is gone already, or there was none."""
    last_error: str | None
    result: dict[str, Any] | None
    """What the system's own work came to."""
    error: str | None
    """Why its last tick made no job; None: it did."""
    created_at: datetime
    created_by: str | None
    updated_at: datetime

    @property
    def when(self) -> When:
        return When(self.cron, self.seconds, self.tz)


class Declared(msgspec.Struct, frozen=True):
    """What a program says of a schedule in code."""

    name: str
    tenant: str | None
    task: Task[..., Any]
    args: str
    when: When
    missed: Missed


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def tasks(self) -> dict[str, Task[..., Any]]: ...

    @property
    def task(self) -> TaskMaker: ...

    def task_named(self, name: str) -> Task[..., Any]: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def enqueue_jobs(self, jobs: list[JobSpec[Any]], tx: Any) -> Coroutine[Any, Any, list[Job[Any]]]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Schedules:
    """`hf.schedules`. Those that are set here live in the database; those of `@hf.every` also in the code."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.declared: dict[tuple[str, str], Declared] = {}
        """By tenant ('' for none) and name."""

    # -- in code -------------------------------------------------------------------------------------------------------

    def every(
        self,
        every: str | float,
        *,
        tz: str = "UTC",
        name: str | None = None,
        tenant: str | None = None,
        missed: Missed = "skip",
        args: Mapping[str, Any] | None = None,
    ) -> Callable[[Any], Any]:
        """`hf.every`: a decorator for a function or a task. Several may stand above one task, each with a name of its own."""
        when = when_of(every, tz, ConfigError)

        def declare(fn: Any) -> Task[..., Any]:
            task: Task[..., Any] = fn if isinstance(fn, Task) else self._platform.task(fn)
            try:
                called = _own_name(task.name if name is None else name)
                whose = checked_name_or_none("tenant", tenant)
                data = task.bind_arguments((), args or {}).decode()
            except HoldfastError as wrong:
                raise ConfigError(f"every: {wrong}") from None
            if missed not in ("skip", "once"):
                raise ConfigError(f"every: missed must be 'skip' or 'once', not {reprlib.repr(missed)}")
            if (whose or "", called) in self.declared:
                raise ConfigError(f"Two schedules are called {called}; give one of them another name=.")
            self.declared[(whose or "", called)] = Declared(called, whose, task, data, when, missed)
            return task

        return declare

    async def declare_all(self) -> None:
        """Bring the database to what this program's code says. Only what differs is written."""
        if not self.declared:
            return
        now = await self._now()
        for (tenant, name), wanted in self.declared.items():
            found = await self._platform.store.shared("schedule_get", tenant, name)
            if found and _definition(found[0]) == _definition_of(wanted):
                continue
            next_at = wanted.when.next_after(now)
            await _put(self._platform.store, wanted, next_at, declared=True, by=None)

    # -- at run time ---------------------------------------------------------------------------------------------------

    async def set(
        self,
        name: str,
        task: str | Task[..., Any],
        every: str | float,
        *,
        args: Mapping[str, Any] | None = None,
        tz: str = "UTC",
        tenant: str | None = None,
        missed: Missed = "skip",
        by: str | None = None,
        tx: Transaction | None = None,
    ) -> Schedule:
        """Create or change one. While its times stay the same, so does its next tick."""
        scope, by = _scope(name, tenant), checked_name_or_none("by", by)
        _own_name(name)
        known = self._platform.task_named(task.name if isinstance(task, Task) else task)
        data = known.bind_arguments((), args or {}).decode()
        if missed not in ("skip", "once"):
            raise InvalidOption(f"missed must be 'skip' or 'once', not {reprlib.repr(missed)}.")
        wanted = Declared(name, tenant, known, data, when_of(every, tz), missed)
        if scope in self.declared:
            raise Conflict(f"The schedule {name} stands in the code (@hf.every); change it there.", "schedule_declared")
        async with within(self._platform, tx) as inside:
            now = (await inside.shared("clock_read"))[0]["now_at"]
            await _put(inside, wanted, wanted.when.next_after(now), declared=False, by=by)
            await note(inside, tenant, "schedule.set", by, schedule=name, task=known.name, every=every, tz=tz)
            return await _get(inside, scope)

    async def get(self, name: str, *, tenant: str | None = None) -> Schedule:
        return await _get(self._platform.store, _scope(name, tenant))

    async def list(self, *, tenant: str | None = None, cursor: tuple[str, str] = ("", ""), limit: int = 50) -> list[Schedule]:
        """By tenant and name; those of one tenant, or all. `cursor`: tenant ('' for none) and name of the last one seen."""
        checked_name_or_none("tenant", tenant)
        found = await self._platform.store.shared("schedule_list", tenant, *cursor, checked_limit(limit))
        return [_schedule(row) for row in found]

    async def pause(self, name: str, *, tenant: str | None = None, by: str | None = None) -> Schedule:
        """No more ticks. What falls into a pause is not made up for."""
        return await self._change("schedule_pause", name, tenant, by, "paused", checked_name_or_none("by", by))

    async def resume(self, name: str, *, tenant: str | None = None, by: str | None = None) -> Schedule:
        """Goes on with the next tick that lies ahead."""
        known = await self.get(name, tenant=tenant)
        next_at = known.when.next_after(await self._now(), known.next_at)
        return await self._change("schedule_resume", name, tenant, by, "resumed", next_at)

    async def _change(self, statement: str, name: str, tenant: str | None, by: str | None, word: str, *args: Any) -> Schedule:
        scope, by = _scope(name, tenant), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            known = await _get(tx, scope)
            if not await tx.shared(statement, *scope, *args):
                state = "is paused" if known.paused_at else "is not paused"
                raise Conflict(f"The schedule {name} {state} already.", f"already_{word}")
            await note(tx, tenant, f"schedule.{word}", by, schedule=name)
            return await _get(tx, scope)

    async def run_now(self, name: str, *, tenant: str | None = None, by: str | None = None) -> Job[Any] | None:
        """One job at once, whatever the clock says; its ticks stay as they are. Of the system's own work the next pass of a
        reaper does it, and there is no job."""
        scope, by = _scope(name, tenant), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            known = await _get(tx, scope)
            await note(tx, tenant, "schedule.run", by, schedule=name)
            if known.task is None:
                await tx.shared("system_bring_forward", name)
                return None
            spec = spec_of(self._platform.task_named(known.task), known.args, name, tenant, by=by)
            (job,) = await self._platform.enqueue_jobs([spec], tx)
            await tx.shared("schedule_made", *scope, job.id, None)
        return job

    async def remove(self, name: str, *, tenant: str | None = None, by: str | None = None) -> Schedule:
        """One that stands in code comes back with the next start of a program that has it."""
        scope, by = _scope(name, tenant), checked_name_or_none("by", by)
        async with self._platform.transaction() as tx:
            known = await _get(tx, scope)
            if not await tx.shared("schedule_delete", *scope):
                raise Conflict(f"The schedule {name} is the system's own; pause it instead.", "schedule_of_system")
            await note(tx, tenant, "schedule.removed", by, schedule=name)
        return known

    async def _now(self) -> datetime:
        now: datetime = (await self._platform.store.shared("clock_read"))[0]["now_at"]
        return now

    # -- the same for sync programs ------------------------------------------------------------------------------------

    def set_sync(self, name: str, task: str | Task[..., Any], every: str | float, **options: Any) -> Schedule:
        return self._platform.call_sync(self.set(name, task, every, **options))

    def get_sync(self, name: str, *, tenant: str | None = None) -> Schedule:
        return self._platform.call_sync(self.get(name, tenant=tenant))

    def list_sync(self, **which: Any) -> list[Schedule]:  # type: ignore[valid-type]
        return self._platform.call_sync(self.list(**which))

    def pause_sync(self, name: str, **which: Any) -> Schedule:
        return self._platform.call_sync(self.pause(name, **which))

    def resume_sync(self, name: str, **which: Any) -> Schedule:
        return self._platform.call_sync(self.resume(name, **which))

    def run_now_sync(self, name: str, **which: Any) -> Job[Any] | None:
        return self._platform.call_sync(self.run_now(name, **which))

    def remove_sync(self, name: str, **which: Any) -> Schedule:
        return self._platform.call_sync(self.remove(name, **which))


def spec_of(
    task: Task[..., Any],
    args: Mapping[str, Any],
    name: str,
    tenant: str | None,
    *,
    by: str | None = None,
    tick: datetime | None = None,
) -> JobSpec[Any]:
    """The job of a tick. Its arguments are checked again: the task may have changed since they were stored."""
    meta = {"schedule": name, **({} if tick is None else {"tick": tick.isoformat()})}
    options = job_options(task.name, {"tenant": tenant, "enqueued_by": by or f"schedule:{name}"[:200], "meta": meta})
    return JobSpec(task, task.bind_arguments((), args), options)


def _scope(name: str, tenant: str | None) -> tuple[str, str]:
    """As the database's key has it."""
    return checked_name_or_none("tenant", tenant) or "", checked_name("name", name)


def _own_name(name: str) -> str:
    if CONTROL.search(checked_name("name", name)):
        raise InvalidOption(f"name must be text without control characters, not {reprlib.repr(name)}.")
    if name.startswith(SYSTEM):
        raise InvalidOption(f"Names that begin with {SYSTEM} belong to the system; choose another for {reprlib.repr(name)}.")
    return name


async def _put(database: Store | Transaction, wanted: Declared, next_at: datetime, *, declared: bool, by: str | None) -> None:
    times = wanted.when.cron, wanted.when.seconds, wanted.when.tz
    what = wanted.name, wanted.tenant, wanted.task.name, wanted.args
    await database.shared("schedule_put", *what, *times, wanted.missed, declared, next_at, by, new_job_id())


async def _get(database: Store | Transaction, scope: tuple[str, str]) -> Schedule:
    found = await database.shared("schedule_get", *scope)
    if not found:
        whose = f"{scope[0]} has" if scope[0] else "There is"
        raise NotFound(f"{whose} no schedule {reprlib.repr(scope[1])}.")
    return _schedule(found[0])


def _schedule(row: Mapping[str, Any]) -> Schedule:
    known = {name: row[name] for name in Schedule.__struct_fields__}
    known["args"] = msgspec.json.decode(row["args"])
    known["result"] = msgspec.json.decode(row["result"]) if row["result"] else None
    known["declared"] = bool(row["declared"])
    known["last_job_id"] = None if row["last_job_id"] is None else str(row["last_job_id"])
    return Schedule(**known)


def _definition(row: Mapping[str, Any]) -> tuple[Any, ...]:
    times = row["cron"], row["seconds"], row["tz"]
    return (row["task"], msgspec.json.decode(row["args"]), *times, row["missed"], bool(row["declared"]))


def _definition_of(wanted: Declared) -> tuple[Any, ...]:
    times = wanted.when.cron, wanted.when.seconds, wanted.when.tz
    return (wanted.task.name, msgspec.json.decode(wanted.args), *times, wanted.missed, True)
