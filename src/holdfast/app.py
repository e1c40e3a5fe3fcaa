"""Holdfast: the composition root, the only place that names a concrete store."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import codec, prune, reading
from holdfast import reap as rescue
from holdfast.clock import DatabaseClock
from holdfast.console import guard_log
from holdfast.database_url import parse_database_url
from holdfast.enqueue import Door
from holdfast.errors import ConfigError, InvalidOption, UnknownTask
from holdfast.extension import Extension
from holdfast.follow import Hubs, batches
from holdfast.ids import is_uuid
from holdfast.job import Event, Job, LogLine, Run
from holdfast.limits.idempotency import Idempotency
from holdfast.limits.rate import Rates
from holdfast.people.keys import Keys
from holdfast.people.members import Members
from holdfast.people.projects import Projects
from holdfast.portal import Portal
from holdfast.processes.worker import Worker, WorkerEnd
from holdfast.redact import add_pattern
from holdfast.settings import Settings, load_settings
from holdfast.stats import Stats, stats_of
from holdfast.store.protocol import Store, Transaction, WorkerRow
from holdfast.task import JobSpec, Task, TaskMaker
from holdfast.tenants import Plans, Queues, Tenants
from holdfast.why import Why, why_job, why_tenant

if TYPE_CHECKING:
    from holdfast.web.auth import Authenticate
    from holdfast.web.server import Server

T = TypeVar("T")

LIST_MAX = 200


class Holdfast:
    """A queue in a database, and the tasks that this program knows. Making one touches nothing."""

    def __init__(self, url: str | None = None, *, clock: DatabaseClock | None = None, **settings: Any) -> None:
        self.settings: Settings = load_settings(url, **settings)
        guard_log()
        for pattern in self.settings.redact:
            add_pattern(pattern)
        self.clock = clock or DatabaseClock()
        self.store: Store = _open_store(self.settings, self.clock)
        self.tasks: dict[str, Task[..., Any]] = {}
        """By name, and by every alias."""
        self.extensions: dict[str, Extension] = {}
        self.task = TaskMaker(self, self._add_task)
        self._door = Door(self)
        self.tenants = Tenants(self)
        self.plans = Plans(self)
        self.queues = Queues(self)
        self._hubs = Hubs()
        self.rate = Rates(self)
        self.limit = self.rate.define
        self.idempotent = Idempotency(self)
        self.keys = Keys(self)
        self.members = Members(self)
        self.projects = Projects(self)
        self._portal = Portal()
        self._workers: set[Worker] = set()

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _add_task(self, task: Task[..., Any]) -> None:
        for name in (task.name, *task.spec.aliases):
            other = self.tasks.get(name)
            if other is not None and other.fn is not task.fn:
                raise ConfigError(f"Two tasks are called {name}; give one of them another name=.")
            self.tasks[name] = task

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

    async def migrate(self) -> list[str]:
        """Bring the schema up to date. Safe at every start and from many processes at once; the names of what was done."""
        done = await self.store.schema_migrate()
        for extension in self.extensions.values():
            applied = await self.store.extension_migrate(extension.name, extension.migrations_for(self.store.name))
            done += [f"{extension.name}/{name}" for name in applied]
        return done

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on the same database: `tx.execute`, `tx.fetch`, and `tx=` for enqueue."""
        return self.store.transaction()

    async def aclose(self) -> None:
        """Workers of this object are stopped first, with their grace period."""
        for worker in list(self._workers):
            await worker.stop_and_wait()
        await self._hubs.close_here()
        await self.store.close()
        if self._portal.started:
            await asyncio.to_thread(self._close_portal)

    def close(self) -> None:
        """For sync programs."""
        self._close_portal()

    def _close_portal(self) -> None:
        if self._portal.started:
            for worker in list(self._workers):
                self._portal.call(worker.stop_and_wait())
            self._portal.call(self._hubs.close_here())
            self._portal.call(self.store.close())
            self._portal.close()

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
        self._refuse_strangers(jobs)
        return await self._door.enqueue(jobs, tx)

    def enqueue_jobs_sync(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]:
        self._refuse_strangers(jobs)
        if tx is not None:
            return self._door.enqueue_in_callers_thread(jobs, tx)
        return self.call_sync(self._door.enqueue(jobs, None))

    def _refuse_strangers(self, jobs: Sequence[JobSpec[Any]]) -> None:
        for job in jobs:
            if not isinstance(job, JobSpec):
                raise InvalidOption(f"enqueue_many takes what task.job(...) returns, not {type(job).__name__}.")
            if job.task.app is not self:
                raise UnknownTask(f"Task {job.task.name} belongs to another Holdfast object.")

    # -- look and act --------------------------------------------------------------------------------------------------

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        """`tenant`, here and below: only if it is this tenant's; else there is no such job."""
        return self._ours(await self.store.job_get(reading.known_form(job_id), tenant=tenant))

    async def jobs(self, *, cursor: str | None = None, limit: int = 50, **where: Any) -> list[Job[Any]]:
        """Newest first. `where`: state, queue, task, tenant, project, tag, after, before."""
        if not 1 <= limit <= LIST_MAX:
            raise InvalidOption(f"limit must lie between 1 and {LIST_MAX}, not {limit}")
        wanted = reading.job_filter(where)
        if cursor is not None and not is_uuid(cursor):
            raise InvalidOption(f"cursor must be the id of a job, not {reprlib.repr(cursor)}")
        return [self._ours(job) for job in await self.store.job_list(wanted, cursor=cursor, limit=limit)]

    async def runs(self, job_id: str, *, tenant: str | None = None) -> list[Run]:
        """Every attempt, newest first."""
        return await self.store.run_list(reading.known_form(job_id), tenant=tenant)

    async def events(
        self, job_id: str | None = None, *, tenant: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[Event]:
        """All of one job, oldest first; without a job those of a tenant or of everybody, newest first and by pages, where
        `before` is the id of the last one seen."""
        if job_id is not None:
            if tenant is not None or before is not None:
                raise InvalidOption("events takes a job, or a tenant and pages; not both")
            return await reading.events_of_job(self.store, job_id)
        return await reading.events(self.store, tenant, before, limit)

    async def logs(
        self,
        run_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        levels: Sequence[str] = (),
        step: str | None = None,
        search: str | None = None,
        newest: bool = False,
        limit: int = 1000,
    ) -> list[LogLine]:
        """Lines of one run by number: the first `limit` that match, or with `newest` the last ones. `after` and `before` are
        numbers, `search` is plain text in whatever case."""
        where = reading.log_filter(after=after, before=before, levels=levels, step=step, search=search)
        return await reading.logs(self.store, run_id, where, newest, limit)

    async def follow(self, job_id: str, *, run_no: int | None = None, after: int = 0) -> AsyncGenerator[LogLine, None]:
        """Lines as they are written: of one run until its end, or of the newest run and all later ones until the job ends.
        `after` is the number of the last line seen, so that a reader who comes back misses none and sees none twice."""
        start = reading.log_filter(after=after).after
        async with aclosing(batches(self._hubs, self.store, reading.known_form(job_id), run_no, start)) as found:
            async for lines in found:
                for line in lines:
                    yield line

    async def why(self, job_id: str) -> Why:
        """What holds this job, in one sentence."""
        return await why_job(self.store, reading.known_form(job_id), self.clock.now())

    async def why_tenant(self, tenant: str) -> Why:
        """What holds this tenant's jobs, in one sentence."""
        return await why_tenant(self.store, tenant)

    async def stats(self, *, tenant: str | None = None) -> Stats:
        """What waits and runs, how fast, and what needs attention; of one tenant, or of all."""
        return await stats_of(self.store, self.settings, reading.text("tenant", tenant))

    async def workers(self) -> list[WorkerRow]:
        return await self.store.worker_list()

    async def cancel(self, job_id: str, *, by: str | None = None, tenant: str | None = None) -> Job[Any]:
        """A queued job is cancelled at once; a running one is asked to stop and is *cancelling* until it does."""
        return self._ours(await self.store.job_cancel(reading.known_form(job_id), reading.person(by), tenant=tenant))

    async def retry(self, job_id: str, *, by: str | None = None, tenant: str | None = None) -> Job[Any]:
        """Queue a failed or cancelled job anew; its attempts start again at 0, its history stays."""
        return self._ours(await self.store.job_retry_if_ended(reading.known_form(job_id), reading.person(by), tenant=tenant))

    async def wait_for_result(self, job_id: str, *, timeout: float | None = None) -> Any:
        """What the task returned; raises JobFailed, JobCancelled or ResultTimeout."""
        return await reading.wait_for_result(self.store, job_id, timeout)

    def _ours(self, job: Job[Any]) -> Job[Any]:
        job._app = self
        return job

    # -- work ----------------------------------------------------------------------------------------------------------

    def worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        exit_when_idle: float | None = None,
        reap: bool = True,
        on_stuck: Callable[[], None] | None = None,
    ) -> Worker:
        if not isinstance(concurrency, int) or not 1 <= concurrency <= 10_000:
            raise InvalidOption(f"concurrency must be a whole number from 1 to 10000, not {concurrency!r}")
        try:
            exit_when_idle = None if exit_when_idle is None else codec.seconds(0.0)(exit_when_idle)
        except ValueError as wrong:
            raise InvalidOption(f"exit_when_idle must be {wrong}, not {reprlib.repr(exit_when_idle)}") from None
        if isinstance(queues, str):
            raise InvalidOption(f"queues must be a list such as [{queues!r}]")
        for queue in queues or ():
            reading.text("a queue", queue)
        for task in self.tasks.values():
            if task.spec.rate is not None:
                self.rate.named(task.spec.rate)  # better now than at its first job
        wanted = list(queues) if queues else sorted({task.spec.queue for task in self.tasks.values()}) or ["default"]
        return Worker(
            self,
            self.settings,
            self.tasks,
            queues=wanted,
            concurrency=concurrency,
            exit_when_idle=exit_when_idle,
            reap=reap,
            on_stuck=on_stuck,
        )

    async def run_worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        exit_when_idle: float | None = None,
        reap: bool = True,
    ) -> WorkerEnd:
        """Work in this process. `exit_when_idle=0.0` returns when nothing is left to do now, None runs until stopped."""
        worker = self.worker(queues=queues, concurrency=concurrency, exit_when_idle=exit_when_idle, reap=reap)
        self._workers.add(worker)
        try:
            return await worker.run()
        finally:
            self._workers.discard(worker)

    async def reap(self) -> rescue.ReapReport:
        """One recovery pass: jobs whose worker died or hangs are queued again, or given up."""
        report = await rescue.reap(self.store, self.settings)
        await self.store.order_heal()
        return report

    async def prune(self) -> dict[str, int]:
        """Delete what is older than its retention."""
        return await prune.prune(self.store, self.settings)

    def asgi(self, *, authenticate: Authenticate | None = None) -> Server:
        """The HTTP API as an ASGI application: serve it, or mount it under any prefix. `authenticate` is the host's own login:
        it takes a request and answers a `holdfast.web.access.Caller`, or None."""
        from holdfast.web.auth import Authenticator
        from holdfast.web.server import make_app

        return make_app(self, Authenticator(self, authenticate))

    # -- the same for sync programs ------------------------------------------------------------------------------------

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work)

    def migrate_sync(self) -> list[str]:
        return self.call_sync(self.migrate())

    def get_sync(self, job_id: str) -> Job[Any]:
        return self.call_sync(self.get(job_id))

    def jobs_sync(self, *, cursor: str | None = None, limit: int = 50, **where: Any) -> list[Job[Any]]:
        return self.call_sync(self.jobs(cursor=cursor, limit=limit, **where))

    def cancel_sync(self, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.cancel(job_id, by=by))

    def retry_sync(self, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.retry(job_id, by=by))

    def wait_for_result_sync(self, job_id: str, *, timeout: float | None = None) -> Any:
        return self.call_sync(self.wait_for_result(job_id, timeout=timeout))

    def events_sync(self, job_id: str | None = None, **where: Any) -> list[Event]:
        return self.call_sync(self.events(job_id, **where))

    def logs_sync(self, run_id: str, **where: Any) -> list[LogLine]:
        return self.call_sync(self.logs(run_id, **where))

    def follow_sync(self, job_id: str, *, run_no: int | None = None, after: int = 0) -> Iterator[LogLine]:
        lines = self.follow(job_id, run_no=run_no, after=after)

        async def next_line() -> LogLine | None:
            return await anext(lines, None)

        try:
            while (line := self.call_sync(next_line())) is not None:
                yield line
        finally:
            self.call_sync(lines.aclose())

    def run_worker_sync(
        self, *, queues: Sequence[str] | None = None, concurrency: int = 10, exit_when_idle: float | None = None
    ) -> WorkerEnd:
        return self.call_sync(self.run_worker(queues=queues, concurrency=concurrency, exit_when_idle=exit_when_idle))

    def why_sync(self, job_id: str) -> Why:
        return self.call_sync(self.why(job_id))

    def reap_sync(self) -> rescue.ReapReport:
        return self.call_sync(self.reap())


def _open_store(settings: Settings, clock: DatabaseClock) -> Store:
    """The driver is imported only for the database in use: a worker's start should not pay for the other."""
    database = parse_database_url(settings.database_url)
    if database.path is not None:
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteStore(database.path, clock=clock)
    from holdfast.store.postgres.store import PostgresStore

    assert database.url is not None
    return PostgresStore(database.url, clock=clock, shown=database.safe)
