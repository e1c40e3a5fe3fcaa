"""Holdfast: the composition root, the only place that names a concrete store."""

from __future__ import annotations

import asyncio
import importlib
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast import codec
from holdfast.batch import Batches
from holdfast.claim import check_queues
from holdfast.clock import DatabaseClock
from holdfast.console import guard_log
from holdfast.context import current_run
from holdfast.database_url import parse_database_url
from holdfast.enqueue import Door
from holdfast.errors import ConfigError, InvalidOption, UnknownTask
from holdfast.extension import Extension
from holdfast.follow import Hubs
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.job import Job
from holdfast.limits.breaker import Breakers
from holdfast.limits.budget import Budgets
from holdfast.limits.idempotency import Idempotency
from holdfast.limits.rate import Rates
from holdfast.limits.spending import Spending
from holdfast.machines.protocol import Provider
from holdfast.portal import Portal
from holdfast.processes.machines import Machines
from holdfast.redact import add_pattern
from holdfast.schedule import Schedules
from holdfast.settings import Settings, load_settings
from holdfast.store.protocol import Store, Transaction
from holdfast.sync_twins import SyncTwins
from holdfast.task import JobSpec, Task, TaskMaker, check_hook
from holdfast.tenants import Plans, Queues, Tenants

if TYPE_CHECKING:
    from holdfast.adopt.work import AdoptedWork
    from holdfast.outbox import Outbox
    from holdfast.people.keys import Keys
    from holdfast.people.members import Members
    from holdfast.people.projects import Projects
    from holdfast.processes.worker import Worker
    from holdfast.processes.worker_end import WorkerEnd
    from holdfast.reap import ReapReport
    from holdfast.web.auth import Authenticate
    from holdfast.web.server import Server
    from holdfast.webhooks.endpoints import Webhooks
    from holdfast.webhooks.inbound import Inbound


class Holdfast(SyncTwins):
    """A queue in a database, and the tasks that this program knows. Making one touches nothing."""

    def __init__(self, url: str | None = None, *, clock: DatabaseClock | None = None, **settings: Any) -> None:
        self.settings: Settings = load_settings(url, **settings)
        guard_log()
        for pattern in self.settings.redact:
            add_pattern(pattern)
        self.clock = clock or DatabaseClock()
        self.store: Store = open_store(self.settings, self.clock)
        self.tasks: dict[str, Task[..., Any]] = {}
        """By name, and by every alias."""
        self.extensions: dict[str, Extension] = {}
        self.task = TaskMaker(self, self._add_task)
        self.tenants = Tenants(self)
        self.plans = Plans(self)
        self.queues = Queues(self)
        self._hubs = Hubs()
        self.rate = Rates(self)
        self.limit = self.rate.define
        self.idempotent = Idempotency(self)
        self.budgets = Budgets(self)
        self.spending = Spending(self)
        self.breakers = Breakers(self, current_run)
        self.breaker = self.breakers.named
        self.failed_hook: Task[..., Any] | None = None
        self._door = Door(self)
        self.schedules = Schedules(self)
        self.every = self.schedules.every
        self.batches = Batches(self, self._door)
        self.batch = self.batches.create
        self.batch_sync = self.batches.create_sync
        self.machines = Machines(self, _open_provider)
        if self.settings.webhooks:
            self._add_task(self.outbox.delivery)
        self._portal = Portal()
        self._workers: set[Worker] = set()
        reset_after_fork(self)

    # -- parts that few programs touch: imported when first asked for --------------------------------------------------

    @cached_property
    def keys(self) -> Keys:
        from holdfast.people.keys import Keys

        return Keys(self)

    @cached_property
    def members(self) -> Members:
        from holdfast.people.members import Members

        return Members(self)

    @cached_property
    def projects(self) -> Projects:
        from holdfast.people.projects import Projects

        return Projects(self)

    @cached_property
    def webhooks(self) -> Webhooks:
        from holdfast.webhooks.endpoints import Webhooks

        return Webhooks(self)

    @cached_property
    def outbox(self) -> Outbox:
        from holdfast.outbox import Outbox

        return Outbox(self)

    @cached_property
    def inbound(self) -> Inbound:
        from holdfast.webhooks.inbound import Inbound

        return Inbound(self)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _add_task(self, task: Task[..., Any]) -> None:
        for name in (task.name, *task.spec.aliases):
            other = self.tasks.get(name)
            if other is not None and other.fn is not task.fn:
                raise ConfigError(f"Two tasks are called {name}; give one of them another name=.")
            self.tasks[name] = task
        self.budgets.refuses |= task.spec.budget is not None and task.spec.on_budget == "refuse"

    def on_failed(self, task: Task[..., Any]) -> Task[..., Any]:
        """Let this task be enqueued whenever a job fails for good whose own task names none: once, above that task."""
        check_hook("on_failed", task)
        self.failed_hook = task
        return task

    def task_named(self, name: str) -> Task[..., Any]:
        """By name or alias; UnknownTask names those there are."""
        try:
            return self.tasks[name]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none; is the module with the tasks imported?"
            raise UnknownTask(f"There is no task called {name!r}. Known: {known}.") from None

    def extend(self, name: str, **parts: Any) -> Extension:
        """Let an application join: its migrations, tasks, and later its routes, pages and commands."""
        if name in self.extensions:
            raise ConfigError(f"There are two extensions called {name}.")
        extension = Extension(name, **parts)
        for task in extension.tasks:
            self._add_task(task)
        self.extensions[name] = extension
        return extension

    # -- the database --------------------------------------------------------------------------------------------------

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """Bring the schema up to date. Safe at every start and from many processes at once; the names of what was done.
        `rls` turns row level security on (PostgreSQL); it then stays on."""
        done = await self.store.schema_migrate()
        for extension in self.extensions.values():
            applied = await self.store.extension_migrate(extension.name, extension.migrations_for(self.store.name))
            done += [f"{extension.name}/{name}" for name in applied]
        if rls or done:  # tables that came just now are closed as well, where rows are guarded
            await self.store.rows_guard(only_if_on=not rls)
        return done

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on the same database: `tx.execute`, `tx.fetch`, and `tx=` for enqueue."""
        return self.store.transaction()

    async def aclose(self) -> None:
        """Workers of this object are stopped first, with their grace period."""
        for worker in list(self._workers):
            await worker.stop_and_wait()
        await self._leave()
        if self._portal.started:
            await asyncio.to_thread(self._close_portal)

    def close(self) -> None:
        """For sync programs."""
        self._close_portal()

    def _close_portal(self) -> None:
        if self._portal.started:
            for worker in list(self._workers):
                self._portal.call(worker.stop_and_wait())
            self._portal.close(self._leave)

    async def _leave(self) -> None:
        await self.machines.aclose()
        await self._hubs.close_here()
        await self.store.close()

    def _reset_after_fork(self) -> None:
        """What runs in the parent does not run in this process."""
        keep_for_parent(self._hubs, *self._workers)
        self._hubs = Hubs()
        self._workers.clear()
        self.spending.pending.clear()

    # -- accept --------------------------------------------------------------------------------------------------------

    async def enqueue(self, name: str, args: dict[str, Any] | None = None, **options: Any) -> Job[Any]:
        """By name, for callers that have no function at hand. The arguments are checked all the same."""
        bound = self.task_named(name).options(**options)
        # Not enqueue(**args): an argument may be called `self`.
        spec = JobSpec(bound.task, bound.task.bind_arguments((), args or {}), bound.job_options)
        return (await self.enqueue_jobs([spec], bound.tx))[0]

    async def enqueue_many(self, jobs: Sequence[JobSpec[Any]], *, tx: Any = None) -> list[Job[Any]]:
        """All of them or none, in one statement."""
        return await self.enqueue_jobs(jobs, tx)

    def enqueue_many_sync(self, jobs: Sequence[JobSpec[Any]], *, tx: Any = None) -> list[Job[Any]]:
        return self.enqueue_jobs_sync(jobs, tx)

    async def enqueue_jobs(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]:
        self.check_jobs(jobs)
        accepted = await self._door.enqueue(jobs, tx)
        if tx is None and self.machines.configured:
            self.machines.ask()
        return accepted

    def enqueue_jobs_sync(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]:
        self.check_jobs(jobs)
        if tx is not None:
            return self._door.enqueue_in_callers_thread(jobs, tx)
        return self.call_sync(self.enqueue_jobs(jobs, None))

    def check_jobs(self, jobs: Sequence[JobSpec[Any]]) -> None:
        for job in jobs:
            if not isinstance(job, JobSpec):
                raise InvalidOption(f"enqueue_many takes what task.job(...) returns, not {type(job).__name__}.")
            if job.task.app is not self:
                raise UnknownTask(f"Task {job.task.name} belongs to another Holdfast object.")

    # -- work ----------------------------------------------------------------------------------------------------------

    def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int = 10,
        exit_when_idle: float | None = None,
        reap: bool = True,
        schedule: bool = True,
        on_stuck: Callable[[], None] | None = None,
        max_lifetime: float | None = None,
        watchdog: float = 0.0,
    ) -> Worker:
        from holdfast.processes.scheduler import Scheduler
        from holdfast.processes.worker import Worker

        if not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidOption(f"concurrency must be a whole number from 1 to 10000, not {concurrency!r}")
        for name, value in (("exit_when_idle", exit_when_idle), ("watchdog", watchdog)):
            try:
                _ = value is None or codec.seconds(0.0)(value)
            except ValueError as wrong:
                raise InvalidOption(f"{name} must be {wrong}, not {reprlib.repr(value)}") from None
        announces = self.settings.webhooks and any(task.spec.announce for task in self.tasks.values())
        wanted = check_queues(queues) or sorted({task.spec.queue for task in self.tasks.values()}) or ["default"]
        for task in self.tasks.values():
            if task.spec.rate is not None:
                self.rate.named(task.spec.rate)  # better now than at its first job
        return Worker(
            self,
            self.settings,
            self.tasks,
            queues=wanted,
            concurrency=concurrency,
            exit_when_idle=exit_when_idle,
            reap=reap,
            on_stuck=on_stuck,
            max_lifetime=self.settings.max_lifetime if max_lifetime is None else max_lifetime,
            watchdog=watchdog,
            scheduler=Scheduler(self) if schedule else None,
            announce=self._announce if announces else None,
        )

    async def run_worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int = 10,
        exit_when_idle: float | None = None,
        reap: bool = True,
        schedule: bool = True,
        watchdog: float = 0.0,
    ) -> WorkerEnd:
        """Work in this process. `exit_when_idle=0.0` returns when nothing is left to do now, None runs until stopped.
        `queues`: a list, the first one first; or weights such as `{"mail": 3, "reports": 1}`. `watchdog=60` ends this
        whole process when it is frozen for so many seconds; off, for it takes the one timer of `faulthandler`."""
        worker = self.worker(
            queues=queues,
            concurrency=concurrency,
            exit_when_idle=exit_when_idle,
            reap=reap,
            schedule=schedule,
            watchdog=watchdog,
        )
        self._workers.add(worker)
        try:
            return await worker.run()
        finally:
            self._workers.discard(worker)

    async def _announce(self) -> int:
        from holdfast.webhooks.announce import announce_ended

        return await announce_ended(self)

    async def reap(self) -> ReapReport:
        """One recovery pass: jobs whose worker died or hangs are queued again, or given up; and machines are started for jobs
        that nobody serves."""
        from holdfast.adopt.rescue import reap_adopted
        from holdfast.reap import reap

        report = await reap(self.store, self.settings, self.machines.recover)
        report.adopted = await reap_adopted(self.store, self.settings)
        await self.store.order_heal()
        return report

    def adopted(self, table: str) -> AdoptedWork:
        """For workers of a table of one's own: `claim`, `heartbeat`, `finish`, `fail`."""
        from holdfast.adopt.work import AdoptedWork

        for one in self.settings.adopted:
            if one.table == table:
                return AdoptedWork(self, one)
        return AdoptedWork(self, table)

    async def prune(self) -> dict[str, int]:
        """Delete what is older than its retention."""
        from holdfast.prune import prune

        return await prune(self.store, self.settings)

    def asgi(self, *, authenticate: Authenticate | None = None) -> Server:
        """The HTTP API as an ASGI application: serve it, or mount it under any prefix. `authenticate` is the host's own login:
        it takes a request and answers a `holdfast.web.access.Caller`, or None."""
        from holdfast.web.auth import Authenticator
        from holdfast.web.server import make_app

        return make_app(self, Authenticator(self, authenticate))

    # -- for sync programs; most twins are in sync_twins.py --------------------------------------------------------------

    def migrate_sync(self, *, rls: bool = False) -> list[str]:
        return self.call_sync(self.migrate(rls=rls))

    def run_worker_sync(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        concurrency: int = 10,
        exit_when_idle: float | None = None,
    ) -> WorkerEnd:
        return self.call_sync(self.run_worker(queues=queues, concurrency=concurrency, exit_when_idle=exit_when_idle))

    def reap_sync(self) -> ReapReport:
        return self.call_sync(self.reap())


def _open_provider(settings: Settings) -> Provider:
    """Each provider is a module with `from_settings`, imported only where it is chosen."""
    try:
        module = importlib.import_module(f"holdfast.machines.{settings.machine_provider}")
    except ModuleNotFoundError as error:
        raise ConfigError(f"The machine provider {settings.machine_provider} cannot be used here: {error}.") from error
    provider: Provider = module.from_settings(settings)
    return provider


def open_store(settings: Settings, clock: DatabaseClock) -> Store:
    """The driver is imported only for the database in use: a worker's start should not pay for the other."""
    database = parse_database_url(settings.database_url)
    if database.path is not None:
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteStore(database.path, clock=clock)
    from holdfast.store.postgres.store import PostgresStore

    assert database.url is not None
    listen = parse_database_url(settings.listen_url).url if settings.listen_url else None
    return PostgresStore(database.url, clock=clock, shown=database.safe, listen_url=listen)
