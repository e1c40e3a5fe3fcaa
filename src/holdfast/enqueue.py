"""Step 1 of 6: accept. Jobs are planned without touching anything (pure), then inserted by one statement.

The same plan is executed by our own connection or, with `tx=`, by the caller's, inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from holdfast import sealing, tracing
from holdfast.errors import DuplicateJob, InvalidOption
from holdfast.ids import new_job_ids, new_run_ids
from holdfast.job import Job
from holdfast.limits.budget import Budgets, refuse_if_used_up
from holdfast.limits.depth import DepthGuard
from holdfast.options import JobOptions, TaskSpec
from holdfast.redact import redact, redact_value
from holdfast.settings import Settings
from holdfast.store.protocol import Depth, Inserted, NewJob, Store
from holdfast.task import JobSpec, Task
from holdfast.tx import Caller, caller_of

_NO_ARGUMENTS = msgspec.Raw(b"{}")


def plan(
    specs: Sequence[JobSpec[Any]], settings: Settings, failed_hook: Task[..., Any] | None = None, batch: str | None = None
) -> list[NewJob]:
    """`failed_hook`: the task for failures of tasks that name none of their own."""
    jobs: list[NewJob] = []
    keys = settings.encryption_keys
    like: JobSpec[Any] | None = None
    for spec, job_id, run_id in zip(specs, new_job_ids(len(specs)), new_run_ids(len(specs)), strict=True):
        if like is None or spec.options is not like.options or spec.task is not like.task:
            like, pattern = spec, _pattern(spec, settings)
            hook = spec.task.spec.on_failed or failed_hook
            pattern.on_failed = None if hook is None else _on_failed(hook, settings)
            pattern.batch = batch
        args = sealing.seal_json(keys, spec.args.decode(), f"{job_id}:args").encode() if keys else spec.args
        jobs.append(replace(pattern, id=job_id, run_id=run_id, args=msgspec.Raw(args)))
    context = tracing.context_of_enqueue(jobs)
    if context is not None:
        for job in jobs:
            job.trace_context = context
    return jobs


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def failed_hook(self) -> Task[..., Any] | None: ...

    @property
    def budgets(self) -> Budgets: ...


class Door:
    """Where jobs come in, and what is known there of the tenants' backlogs."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._depth = DepthGuard()

    @property
    def _store(self) -> Store:
        return self._platform.store

    async def enqueue(self, specs: Sequence[JobSpec[Any]], tx: object, *, batch: str | None = None) -> list[Job[Any]]:
        jobs = plan(specs, self._platform.settings, self._platform.failed_hook, batch)
        if not jobs:
            return []
        if tx is None and len(jobs) > 1 and any(spec.options.on_duplicate == "raise" for spec in specs):
            async with self._store.transaction() as own:  # a refusal rolls all of them back, before any worker can see one
                return await self.enqueue(specs, own)
        if tx is None:
            for tenant, kind in self._budgets_asked(specs):
                found = await self._store.shared("budget_used_up", tenant or "", kind)
                refuse_if_used_up(tenant, kind, [tuple(row.values()) for row in found])
            unknown = self._depth.unknown(job.tenant for job in jobs)
            if unknown:
                self._depth.learn(await self._store.tenant_depths(unknown))
            self._depth.admit(job.tenant for job in jobs)
            return _answers(specs, jobs, await self._store.job_insert_many(jobs))
        caller = _caller_for(self._store, tx)
        for tenant, kind in self._budgets_asked(specs):
            refuse_if_used_up(tenant, kind, await caller.run_async(self._platform.budgets.door_statement(tenant, kind)))
        unknown = self._depth.unknown(job.tenant for job in jobs)
        if unknown:
            self._depth.learn(_depths(await caller.run_async(self._store.depths_statement(unknown))))
        self._depth.admit(job.tenant for job in jobs)
        inserted = self._store.inserted_from_rows(jobs, await caller.run_async(self._store.insert_statement(jobs)))
        if len(jobs) > 1 and _first_refused(specs, inserted):
            await caller.run_async(self._store.forget_statement(_created(jobs, inserted)))
        return _answers(specs, jobs, inserted)

    def enqueue_in_callers_thread(
        self, specs: Sequence[JobSpec[Any]], tx: object, *, batch: str | None = None
    ) -> list[Job[Any]]:
        """For a sync program with a connection of its own: everything happens right here, no loop, no other thread."""
        caller = _caller_for(self._store, tx)
        if caller.is_async:
            raise InvalidOption("enqueue_sync cannot use an async connection; await enqueue(...) instead.")
        jobs = plan(specs, self._platform.settings, self._platform.failed_hook, batch)
        if not jobs:
            return []
        for tenant, kind in self._budgets_asked(specs):
            refuse_if_used_up(tenant, kind, caller.run(self._platform.budgets.door_statement(tenant, kind)))
        unknown = self._depth.unknown(job.tenant for job in jobs)
        if unknown:
            self._depth.learn(_depths(caller.run(self._store.depths_statement(unknown))))
        self._depth.admit(job.tenant for job in jobs)
        inserted = self._store.inserted_from_rows(jobs, caller.run(self._store.insert_statement(jobs)))
        if len(jobs) > 1 and _first_refused(specs, inserted):
            caller.run(self._store.forget_statement(_created(jobs, inserted)))
        return _answers(specs, jobs, inserted)

    def _budgets_asked(self, specs: Sequence[JobSpec[Any]]) -> Iterable[tuple[str | None, str]]:
        """Those that refuse jobs at the door when they are used up; a job that is held is accepted and waits."""
        if not self._platform.budgets.refuses:
            return ()
        return {
            (spec.options.tenant, spec.task.spec.budget)
            for spec in specs
            if spec.task.spec.budget is not None and spec.task.spec.on_budget == "refuse"
        }


def _depths(rows: Sequence[Sequence[Any]]) -> dict[str, Depth]:
    return {row[0]: Depth(int(row[1]), int(row[2])) for row in rows}


def _pattern(spec: JobSpec[Any], settings: Settings) -> NewJob:
    """All that jobs with the same task and options share."""
    task, options = spec.task.spec, spec.options
    return NewJob(
        id="",
        run_id="",
        queue=options.queue or task.queue,
        task=task.name,
        args=_NO_ARGUMENTS,
        max_attempts=options.max_attempts or task.max_attempts or settings.max_attempts,
        lease_seconds=task.lease or settings.lease,
        priority=task.priority if options.priority is None else options.priority,
        tenant=options.tenant,
        project=options.project,
        actor=options.actor and redact(options.actor),
        delay=options.delay or None,
        run_at=options.run_at,
        unique_key=options.unique,
        order_key=options.order,
        order_blocks=task.order_on_failure == "block",
        timeout_seconds=_timeout(task, settings),
        expected_seconds=task.expected,
        backoff=list(task.backoff) if isinstance(task.backoff, tuple) else None,
        noun=task.noun,
        tags=options.tags,
        meta=options.meta and redact_value(options.meta),
        enqueued_by=options.enqueued_by and redact(options.enqueued_by),
        announced=-1 if task.announce and options.tenant is not None and settings.webhooks else None,
    )


def _on_failed(hook: Task[..., Any], settings: Settings) -> msgspec.Raw:
    """All that the database needs to make the follow-up job when this one fails, also without anybody who knows the task."""
    known = msgspec.json.decode(msgspec.json.encode(_pattern(JobSpec(hook, b"{}", JobOptions()), settings)))
    for name in ("id", "run_id", "args"):
        del known[name]
    return msgspec.Raw(msgspec.json.encode({**known, "argument": hook.failure_argument}))


def _timeout(task: TaskSpec, settings: Settings) -> float:
    if task.timeout is not None:
        return task.timeout
    if task.expected is not None:
        return min(settings.run_limit, task.expected * settings.sla_factors.get(task.queue, settings.sla_factor))
    return settings.run_limit


def _caller_for(store: Store, tx: object) -> Caller:
    caller = caller_of(tx)
    if caller.kind != store.name:
        raise InvalidOption(
            f"tx is a connection to {caller.kind}, but the jobs are stored in {store.name}; give one to the same database."
        )
    return caller


def _first_refused(specs: Sequence[JobSpec[Any]], inserted: Sequence[Inserted]) -> DuplicateJob | None:
    for spec, answer in zip(specs, inserted, strict=True):
        if not answer.created and spec.options.on_duplicate == "raise":
            return DuplicateJob(
                f"A job with the unique key {spec.options.unique!r} is still active: {answer.id}.", job_id=answer.id
            )
    return None


def _created(jobs: Sequence[NewJob], inserted: Sequence[Inserted]) -> list[str]:
    return [answer.id for job, answer in zip(jobs, inserted, strict=True) if answer.id == job.id]


def _answers(specs: Sequence[JobSpec[Any]], jobs: Sequence[NewJob], inserted: Sequence[Inserted]) -> list[Job[Any]]:
    refused = _first_refused(specs, inserted)
    if refused is not None:
        raise refused
    return [
        Job(
            id=answer.id,
            run_id=answer.run_id,
            state=answer.state,
            created=answer.created,
            queue=answer.queue,
            task=job.task,
            tenant=job.tenant,
            priority=answer.priority,
            max_attempts=job.max_attempts,
            unique_key=job.unique_key,
            order_key=job.order_key,
            run_at=job.run_at,
            tags=list(job.tags or ()),
            meta=dict(job.meta or ()),
            batch=job.batch,
            _app=spec.task.app,
        )
        for spec, job, answer in zip(specs, jobs, inserted, strict=True)
    ]
