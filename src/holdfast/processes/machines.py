"""`hf.machines`: the machines that come and go with the work, for people and for the parts that need them."""

from __future__ import annotations

import asyncio
import re
import reprlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast import reading
from holdfast.errors import Conflict, InvalidOption, MachinesUnavailable, NotFound
from holdfast.machines.protocol import Kind, Machine, MachineState, Provider, ProviderError

if TYPE_CHECKING:
    from holdfast.job import Run
    from holdfast.machines.reconcile import Seen
    from holdfast.processes.orchestrator import Orchestrator, Platform
    from holdfast.settings import Settings

    class Whole(Platform, Protocol):
        async def runs(self, job_id: str, *, tenant: str | None = None) -> list[Run]: ...


JOBS_SHOWN_MAX = 1_000
POOL_MAX = 1_000
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


class MachineView(msgspec.Struct, kw_only=True):
    """One machine for those who look. Money is an estimate at the configured rate, of the time since its last start."""

    id: str
    name: str
    kind: Kind
    state: MachineState
    region: str | None = None
    started_at: datetime | None = None
    up_seconds: float | None = None
    estimated_cost: float | None = None
    job_ids: list[str] = []
    workers: list[str] = []
    said: str = ""


class Usage(msgspec.Struct, kw_only=True):
    """Of one month: the time that machines were up, or the share of it that a tenant's runs had."""

    month: str
    subject: str
    """`machines`, or `tenant`."""
    tenant: str | None = None
    """None for jobs without one."""
    runs: int
    """Of machines: how often one came up."""
    seconds: float
    estimated_cost: float


class JobUsage(msgspec.Struct, kw_only=True):
    """What a job had of machines. The cost is that of a machine for this time: less where others ran beside it."""

    job_id: str
    runs: int
    seconds: float
    estimated_cost: float


class Machines:
    def __init__(self, platform: Whole, open_provider: Callable[[Settings], Provider]) -> None:
        self._platform = platform
        self._open_provider = open_provider
        self._orchestrator: Orchestrator | None = None
        self.configured = platform.settings.machine_provider != "none"

    def use(self, provider: Provider) -> Orchestrator:
        """A provider of one's own, in place of the configured one."""
        from holdfast.processes.orchestrator import Orchestrator

        self.configured = True
        self._orchestrator = Orchestrator(self._platform, provider)
        return self._orchestrator

    @property
    def orchestrator(self) -> Orchestrator:
        if not self.configured:
            raise Conflict(
                "No machine provider is set; set machine_provider (HOLDFAST_MACHINE_PROVIDER) to local, fly or kubernetes.",
                code="no_machine_provider",
            )
        if self._orchestrator is None:
            self.use(self._open_provider(self._platform.settings))
        assert self._orchestrator is not None
        return self._orchestrator

    def ask(self) -> None:
        """After an enqueue has committed: whoever enqueued does not wait, and no error reaches him."""
        self.orchestrator.ask()

    async def recover(self) -> int:
        return await self.orchestrator.recover() if self.configured else 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """With the orchestrator beside, where a provider is set: for the server and the reaper."""
        if not self.configured:
            yield
            return
        orchestrator = self.orchestrator
        running = asyncio.create_task(orchestrator.run(), name="holdfast orchestrator")
        try:
            yield
        finally:
            orchestrator.stop()
            await running

    async def aclose(self) -> None:
        if self._orchestrator is not None:
            await self._orchestrator.aclose()

    # -- for people

    async def list(self) -> list[MachineView]:
        """What the provider lists, and what was asked for and is not in its list yet."""
        orchestrator = self.orchestrator
        seen = await self._seen()
        workers = await orchestrator.live_workers()
        jobs = await self.running_jobs()
        return [self._view(one, workers, jobs) for one in seen]

    def _view(self, seen: Seen, workers: Sequence[Any], jobs: Sequence[dict[str, Any]]) -> MachineView:
        machine = seen.machine
        is_up = machine.state in (MachineState.RUNNING, MachineState.STARTING, MachineState.STOPPING)
        up = seen.up_seconds if is_up else None
        return MachineView(
            id=machine.id,
            name=machine.name,
            kind=machine.kind,
            state=machine.state if seen.listed else MachineState.STARTING,
            region=machine.region,
            started_at=machine.started_at,
            up_seconds=up,
            estimated_cost=None if up is None else up * self.rate,
            job_ids=[str(job["id"]) for job in jobs if job["machine_id"] == machine.id],
            workers=[worker.id for worker in workers if worker.machine_id == machine.id],
            said=machine.said if seen.listed else "asked for",
        )

    async def running_jobs(self) -> Sequence[dict[str, Any]]:
        """`machine_id`, `id`, `task` and `tenant` of jobs that run on machines, whoever's they are."""
        return await self._platform.store.shared("machine_jobs", JOBS_SHOWN_MAX)

    @property
    def rate(self) -> float:
        """Processes on this host cost nothing unless somebody says so."""
        settings = self._platform.settings
        free = settings.machine_provider == "local" and settings.origin("machine_rate") == "default"
        return 0.0 if free else settings.machine_rate

    async def start(self, name: str | None = None, *, by: str | None = None) -> str:
        """This machine; without a name one of the pool that is stopped, or a new one. Its name."""
        orchestrator = self.orchestrator
        machines = await self._seen()
        up = [seen for seen in machines if seen.machine.state is not MachineState.STOPPED]
        most = self._platform.settings.machine_max
        chosen = self._named(machines, name) if name is not None else _stopped(machines)
        if len(up) >= most and (chosen is None or chosen.state is MachineState.STOPPED):
            raise Conflict(f"{len(up)} of at most {most} machines are up; raise machine_max, or stop one.", code="at_maximum")
        kind: Kind = chosen.kind if chosen else "burst"
        called = chosen.name if chosen else f"{kind}-{secrets.token_hex(4)}"
        await orchestrator.records.asked(called, kind, chosen.id if chosen else None)
        with _errors_for_people():
            if chosen is not None:
                await orchestrator.provider.start(chosen.id)
            else:
                await orchestrator.provider.create(called, kind)
        await self._record("machine.started", called, by)
        return called

    async def stop(self, name: str, *, by: str | None = None) -> str:
        """Its worker drains: what runs has the grace period, the rest goes back to the queue uncounted."""
        machine = self._named(await self._seen(), name)
        await self.orchestrator.records.stop_asked(machine.name)
        with _errors_for_people():
            await self.orchestrator.provider.stop(machine.id)
        await self._record("machine.stopped", machine.name, by)
        return machine.name

    async def up(self) -> Sequence[str]:
        """The names of those that the provider says are not stopped."""
        machines = await self.orchestrator.provider.list()
        return [machine.name for machine in machines if machine.state is not MachineState.STOPPED]

    async def stop_all(self) -> Sequence[str]:
        """For a parent that takes its machines with it, also when the database is away."""
        machines = [one for one in await self.orchestrator.provider.list() if one.state is not MachineState.STOPPED]
        for machine in machines:
            await self.orchestrator.provider.stop(machine.id)
        return [machine.name for machine in machines]

    async def scale(self, pool: int, *, by: str | None = None) -> Sequence[str]:
        """Keep so many machines in the pool: those that are missing are made, and stop again when there is nothing to do; of
        those too many, the stopped ones are destroyed. The names of those that came or went."""
        if not isinstance(pool, int) or isinstance(pool, bool) or not 0 <= pool <= POOL_MAX:
            raise InvalidOption(f"the pool must be a whole number from 0 to {POOL_MAX}, not {reprlib.repr(pool)}")
        most = self._platform.settings.machine_max
        if pool > most:
            raise InvalidOption(f"a pool of {pool} is more than the {most} machines there may be; raise machine_max first.")
        orchestrator = self.orchestrator
        seen = [one.machine for one in await self._seen()]
        kept = [machine for machine in seen if machine.kind == "pool"]
        up = sum(machine.state is not MachineState.STOPPED for machine in seen)
        if up + pool - len(kept) > most:
            raise Conflict(f"{up} machines are up and there may be {most}: new ones would be too many now.", code="at_maximum")
        await orchestrator.records.scale(pool)
        changed = []
        for machine in [one for one in kept if one.state is MachineState.STOPPED][: max(0, len(kept) - pool)]:
            with _errors_for_people():
                await orchestrator.provider.destroy(machine.id)
            await orchestrator.records.forget(machine.name)
            changed.append(machine.name)
        for _ in range(pool - len(kept)):
            called = f"pool-{secrets.token_hex(4)}"
            await orchestrator.records.asked(called, "pool")
            with _errors_for_people():
                await orchestrator.provider.create(called, "pool")
            changed.append(called)
        await self._record("machine.scaled", ", ".join(changed), by, pool=pool)
        return changed

    async def _seen(self) -> Sequence[Seen]:
        with _errors_for_people():
            listed = await self.orchestrator.provider.list()
        return await self.orchestrator.records.merge(listed)

    def _named(self, machines: Sequence[Seen], name: str) -> Machine:
        for seen in machines:
            if name in (seen.machine.name, seen.machine.id):
                return seen.machine
        raise NotFound(f"There is no machine {name!r:.80}; `holdfast machines list` shows those there are.")

    async def _record(self, type_: str, name: str, by: str | None, **data: Any) -> None:
        said = msgspec.json.encode({"machine": name, **data}).decode()
        await self._platform.store.shared("machine_event", None, None, type_, reading.person(by), said)

    # -- cost

    async def usage(self, *, month: str | None = None, tenant: str | None = None) -> Sequence[Usage]:
        """By month, newest first; all months that are known where none is named."""
        if month is not None and not (isinstance(month, str) and _MONTH.fullmatch(month)):
            raise InvalidOption(f"month must be such as 2026-11, not {reprlib.repr(month)}")
        between = (month or "0000-00", month or "9999-99")
        store = self._platform.store
        if tenant is None:
            rows = await store.shared("machine_usage", *between)
        else:
            rows = await store.shared("machine_usage_of", *between, f"tenant:{reading.text('tenant', tenant)}")
        return [self._usage(row) for row in rows]

    def _usage(self, row: dict[str, Any]) -> Usage:
        what, _, whose = row["subject"].partition(":")
        return Usage(
            month=row["month"],
            subject="machines" if what == "machine" else "tenant",
            tenant=whose or None if what == "tenant" else None,
            runs=row["n"],
            seconds=row["seconds"],
            estimated_cost=row["seconds"] * self.rate,
        )

    async def usage_of_job(self, job_id: str, *, tenant: str | None = None) -> JobUsage:
        """All runs of a job that ran on machines, the one that runs now included."""
        now = self._platform.clock.now() or datetime.now(UTC)
        runs = [run for run in await self._platform.runs(job_id, tenant=tenant) if run.machine_id and run.started_at]
        seconds = sum(max(0.0, ((run.finished_at or now) - run.started_at).total_seconds()) for run in runs if run.started_at)
        return JobUsage(job_id=job_id, runs=len(runs), seconds=seconds, estimated_cost=seconds * self.rate)


@contextmanager
def _errors_for_people() -> Iterator[None]:
    try:
        yield
    except ProviderError as error:
        mark = f" (request {error.request_id})" if error.request_id else ""
        raise MachinesUnavailable(f"The provider of machines did not do it: {error}{mark}") from error


def _stopped(machines: Sequence[Seen]) -> Machine | None:
    pool = [seen.machine for seen in machines if seen.machine.kind == "pool" and seen.machine.reachable]
    return next((machine for machine in pool if machine.state is MachineState.STOPPED), None)
