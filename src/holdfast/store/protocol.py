"""The verbs of storage, all on one page. Two stores speak them, one conformance suite holds both to them.

Names are noun first and carry their condition: a method without `if` or `try` never silently does nothing. Everything
that a run writes is fenced: it names the run id of the lease it holds, and is told when that lease is gone.
Every method may raise `StorageUnavailable`; then nothing was written, or the caller may safely ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from holdfast.job import Event, Hold, Job, LogLine, Run, State, status_of

TENANT_MARK = "\x1f"
HOPS = 64
"""How many tenants one claim looks at."""
DEMAND_HOPS_MAX = 1000
"""How many tenants a look at the demand goes to."""
NO_CURSORS: Mapping[str, str | None] = {}


class NewJob(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job that is about to be inserted. Serialised as one element of the insert statement's only parameter."""

    id: str
    run_id: str
    queue: str
    task: str
    args: msgspec.Raw
    max_attempts: int
    lease_seconds: float
    priority: int = 0
    tenant: str | None = None
    project: str | None = None
    actor: str | None = None
    delay: float | None = None
    """Seconds from the database's now; `run_at` is the absolute form. Neither: at once."""
    run_at: datetime | None = None
    unique_key: str | None = None
    order_key: str | None = None
    order_blocks: bool = False
    """Whether this job, should it fail, keeps those behind it in its order key waiting."""
    timeout_seconds: float | None = None
    expected_seconds: float | None = None
    backoff: list[float] | None = None
    """The task's own waits, for the reaper, which does not know the task. None: the configured exponential."""
    noun: str | None = None
    tags: list[str] | None = None
    meta: dict[str, Any] | None = None
    enqueued_by: str | None = None
    trace_context: str | None = None
    batch: str | None = None
    on_failed: msgspec.Raw | None = None
    """The job that a failure makes: these fields without ids and arguments, and `argument`, the name of its only one."""
    announced: int | None = None
    """-1: its end is to be told to the tenant's webhooks."""


class Inserted(msgspec.Struct):
    """What became of one NewJob, in the order given. `id` is an older job's where the unique key met one."""

    id: str
    run_id: str
    state: State
    created: bool
    queue: str
    priority: int


class Claimed(msgspec.Struct):
    """A job that this worker holds now, with what it needs to run it and nothing else. Field order = column order."""

    id: str
    run_id: str
    run_no: int
    task: str
    args: str
    attempt: int
    max_attempts: int
    queue: str
    tenant: str | None
    order_key: str | None
    lease_seconds: float
    timeout_seconds: float | None
    waited_seconds: float
    """From when it could have run until this claim."""
    trace_context: str | None = None
    """Of the trace that it was enqueued under; JSON text."""


class Turn(msgspec.Struct):
    """How far a claim has come on its way round the tenants of one queue."""

    queue: str
    cursor: str | None
    around: bool
    """Whether it came to every tenant with claimable work, and had room left."""
    busy: bool
    """Whether it left somebody out because another worker was serving him at that moment."""
    full: bool = False
    """Whether the queue's own limit, or its pause, kept it from taking more."""
    wrapped: bool = False
    """Whether it came past the last tenant and went on with the first."""
    held: bool = False
    """Whether it came to tenants that are at their limit or paused."""


class Claim(msgspec.Struct):
    jobs: list[Claimed]
    next_due_seconds: float | None = None
    """Where fewer jobs were found than asked for: when the next scheduled one falls due. None: there is none. 0: some may have
    fallen due just now that this claim did not come to."""
    turns: list[Turn] = []


class Unchanged(StrEnum):
    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
"""For what a caller does not mention, where None has a meaning of its own."""


class Plan(msgspec.Struct):
    """What a tenant of this plan may do, unless it has numbers of its own."""

    name: str
    max_running: int
    queue_depth: int
    weight: int = 1


class Tenant(msgspec.Struct, kw_only=True):
    id: str
    plan: str
    limit: int
    """How many of its jobs may run at once, by its own number or its plan."""
    queue_depth: int
    running: int
    """Counted to `limit` at the most."""
    paused_at: datetime | None = None
    paused_by: str | None = None
    timezone: str = "UTC"
    """By which its months are counted."""


class Depth(msgspec.Struct):
    queued: int
    most: int


class Queue(msgspec.Struct, kw_only=True):
    name: str
    limit: int | None = None
    running: int = 0
    """Counted only where there is a limit."""
    paused_at: datetime | None = None
    paused_by: str | None = None


class QueueLoad(msgspec.Struct, kw_only=True):
    """What is in a queue right now, each number counted to a cap at the most."""

    queue: str
    waiting: int = 0
    """May be claimed, or would be if somebody looked: their time has come."""
    scheduled: int = 0
    ordered: int = 0
    """Behind another job with the same ordering key."""
    running: int = 0
    stuck: int = 0
    """Running without a valid lease, or past their deadline: the reaper's next pass takes them."""
    slow: int = 0
    """Running for longer than expected (5 minutes where nothing is)."""
    oldest_wait_seconds: float | None = None
    """Of those that were counted as waiting."""


class Demand(msgspec.Struct, frozen=True):
    """Jobs of one task, tenant and queue that could run now if there were somebody to run them. Field order = column order."""

    queue: str
    tenant: str
    """Empty for jobs without one."""
    task: str
    waiting: int
    """Of those with the same ordering key only one counts, for no more than one of them can run."""
    oldest_seconds: float
    oldest_id: str
    room: int | None = None
    """How many more jobs this tenant may run, whatever their task. None: no limit."""
    queue_room: int | None = None


class Tally(msgspec.Struct):
    """How much was added to one counter."""

    name: str
    queue: str
    label: str
    n: float


class Beat(msgspec.Struct):
    """One run that its worker says is alive."""

    id: str
    run_id: str
    lease_seconds: float


class Held(msgspec.Struct):
    """One lease that is still held."""

    id: str
    run_id: str
    cancel_requested: bool
    cancel_requested_by: str | None
    extended: bool = True
    """False: the run still has its job, but another session has locked the job's row. Ask again soon."""


class Completion(msgspec.Struct):
    id: str
    run_id: str
    result: str | None
    """JSON text."""
    ordered: bool = False
    """Whether the job has an ordering key: then the next one behind it is let go in the same transaction."""


class Table(msgspec.Struct, frozen=True):
    """A table of ours, by the name that statements call it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """Its primary key."""


class Leaving(StrEnum):
    """Every way out of `running` other than completion. A cancel request turns each of them into `cancelled`."""

    RETRY = "retry"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"
    CANCEL = "cancel"


class Departure(msgspec.Struct, kw_only=True, omit_defaults=True):
    id: str
    run_id: str
    how: Leaving
    delay: float = 0.0
    """Seconds until it may run again (RETRY, SNOOZE)."""
    error_code: str | None = None
    error_message: str | None = None
    stage: str | None = None
    keep_attempt: bool = True
    """False gives the attempt back (SNOOZE, RELEASE, and failures that are not the run's fault)."""


class Reaped(msgspec.Struct):
    id: str
    queue: str
    task: str
    tenant: str | None
    attempt: int
    state: State
    """What it became: queued, failed or cancelled."""
    reason: str
    """`worker_died`, `lease_expired` or `deadline_exceeded`."""
    locked_by: str | None
    stage: str | None


class Backoff(msgspec.Struct, frozen=True):
    """Exponential with full jitter: between 0 and min(most, base * 2^(attempt - 1)) seconds."""

    base: float = 5.0
    most: float = 900.0


class Retention(msgspec.Struct, frozen=True):
    """Days."""

    finished: float = 14.0
    failed: float = 90.0
    events: float = 90.0
    logs: float = 90.0
    workers: float = 1.0


class WorkerRow(msgspec.Struct, kw_only=True):
    id: str
    host: str
    pid: int
    machine_id: str | None
    version: str
    queues: list[str]
    tasks: list[str]
    concurrency: int
    running: int = 0
    draining: bool = False
    process: str | None = None
    """See process_identity.py."""
    heartbeat: float | None = None
    """Seconds between two reports; PostgreSQL alone keeps it."""
    started_at: datetime | None = None
    last_seen_at: datetime | None = None


class JobFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Every field that is set must match. Lists are newest first, by id."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    project: str | None = None
    tag: str | None = None
    after: datetime | None = None
    before: datetime | None = None
    batch: str | None = None
    since: str | None = None
    """An id: only this job and newer ones are looked at, however few of them match."""


CANCELLABLE = (State.QUEUED, State.RUNNING)
RETRYABLE = (State.FAILED, State.CANCELLED)


class Acted(msgspec.Struct):
    """What became of one batch of a bulk action."""

    done: list[str]
    skipped: int
    """Did not allow it any more, for example because somebody else was faster."""
    cursor: str | None
    """Where the next batch goes on; None: that was the last."""


class Glance(msgspec.Struct, kw_only=True):
    """What can change about a job while somebody looks on; without what may be large."""

    id: str
    task: str
    queue: str
    tenant: str | None
    state: State
    hold: Hold | None
    attempt: int
    stage: str | None
    progress: float | None
    cancel_requested_at: datetime | None
    error_code: str | None
    updated_at: datetime

    @property
    def status(self) -> str:
        return status_of(self)


class StepResult(msgspec.Struct):
    result: str
    """JSON text."""


class LogBatch(msgspec.Struct):
    """What one run has to say."""

    job_id: str
    run_id: str
    lines: Sequence[LogLine]


class LogFilter(msgspec.Struct, kw_only=True, frozen=True):
    """Every field that is set must match."""

    after: int = 0
    before: int | None = None
    levels: tuple[str, ...] = ()
    step: str | None = None
    search: str | None = None
    """Plain text anywhere in the message, whatever its case."""


class CallerStatement(msgspec.Struct, frozen=True):
    """A statement to be run on the caller's own connection. It has exactly one parameter, written `$1`: JSON text."""

    sql: str
    parameter: str


Wake = Callable[[str], None]
"""Called with `job:<queue>` when work may be there (followed by TENANT_MARK and the tenant where that is known),
`cancel:<job id>` when a running job is to be cancelled, and `` (empty) when anything may have changed. From any thread; must
not block. A hint: it may come late or not at all."""


class Transaction(Protocol):
    """What `hf.transaction()` yields: plain SQL with `$1`, `$2`, … on either database."""

    store_kind: str
    """`sqlite` or `postgres`."""

    async def execute(self, sql: str, *args: Any) -> None: ...
    async def fetch(self, sql: str, *args: Any) -> list[dict[str, Any]]: ...
    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        """As `Store.shared`, inside this transaction."""


class Store(Protocol):
    # -- the file or server itself
    name: str
    """`sqlite` or `postgres`."""

    async def schema_migrate(self) -> list[str]:
        """Bring the schema up to this code's version; the names of what was applied. Safe from many processes at once."""

    async def schema_version(self) -> int:
        """The version found. Raises NotMigrated, SchemaTooNew or NotOurDatabase where this code cannot work with it."""

    async def extension_migrate(self, name: str, migrations: Sequence[tuple[int, str, str]]) -> list[str]:
        """Apply an extension's (number, name, sql) that are not applied yet, in order, each once."""

    def schema_scripts(
        self, applied: Mapping[str, Collection[int]], extensions: Mapping[str, Sequence[tuple[int, str, str]]]
    ) -> list[str]:
        """What the two above would run where these numbers of `core` and of extensions are applied: SQL without parameters for
        the caller's own connection, in order and in one transaction."""

    async def table_list(self) -> list[Table]:
        """Every table of Holdfast and its extensions, by name."""

    async def rows_guard(self, *, only_if_on: bool = False) -> bool:
        """Row level security for tables and functions, where the database has it; else ConfigError. `only_if_on`: bring it up
        to date where it was asked for before. Whether it is on now."""

    async def close(self) -> None: ...

    async def leave_loop(self) -> None:
        """Give back what the running event loop holds; a thread with a loop of its own calls this before it ends."""

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        """A named statement of store/shared/*.sql, which reads the same on both databases: for what is off a job's path."""

    def shared_statement(self, statement: str, *args: Any) -> CallerStatement:
        """The same for the caller's connection; arguments are text, numbers or None."""

    async def clock_offset(self) -> float:
        """Seconds by which this host's clock is ahead of the database's."""

    # -- accept
    async def job_insert_many(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        """All or nothing. Two in one call with the same tenant and unique key become one job."""

    def insert_statement(self, jobs: Sequence[NewJob]) -> CallerStatement:
        """The same as one statement for the caller's connection."""

    def inserted_from_rows(self, jobs: Sequence[NewJob], rows: Sequence[Sequence[Any]]) -> list[Inserted]:
        """Makes sense of that statement's rows: (id, run_id, state, tenant, unique_key, …)."""

    def forget_statement(self, job_ids: Sequence[str]) -> CallerStatement:
        """Takes back, in the caller's transaction, what a refused enqueue_many has just inserted there."""

    # -- hand out
    async def job_claim(
        self,
        *,
        worker: str,
        machine: str | None,
        queues: Sequence[str],
        tasks: Sequence[str],
        limit: int,
        cursors: Mapping[str, str | None] = NO_CURSORS,
        hops: int = HOPS,
        hints: Sequence[str] = (),
    ) -> Claim:
        """Up to `limit` claimable jobs of these tasks, queue by queue in the order given; in a queue tenant by tenant, going
        round from the cursor over at most `hops` tenants, then the `hints`; of a tenant by priority, then oldest first.
        Never more than the tenant's and the queue's limit allow, whoever else claims at the same time."""

    # -- a run speaks; fenced
    async def lease_extend_if_held(self, beats: Sequence[Beat]) -> list[Held]:
        """Those still held, with whether somebody wants them cancelled. What is missing from the answer is lost."""

    async def lease_list(self, worker: str) -> list[Beat]:
        """Every lease this worker holds, also those of a claim whose answer was lost on the way."""

    async def job_complete_if_leased(self, completions: Sequence[Completion]) -> set[str]:
        """The run ids whose completion was accepted. The others have lost their lease, or another session has locked the job's
        row: then `run_states` says `running`, and the completion has to be tried again. The same goes for
        `job_leave_if_leased`, `log_append_if_leased` and `progress_set_if_leased`."""

    async def run_states(self, runs: Sequence[tuple[str, str]]) -> dict[str, State]:
        """The states of the jobs, by run id, whose newest run is this (job id, run id)."""

    def complete_statement(self, completion: Completion) -> CallerStatement:
        """One completion for the caller's connection; it returns one row if accepted, none if the lease is lost. On PostgreSQL
        that row is the isolation level where an ordered job cannot be completed under it; then nothing was written."""

    async def job_leave_if_leased(self, departures: Sequence[Departure]) -> dict[str, State]:
        """Run id -> the state the job went to, for those that still held their lease. Writes history and events."""

    async def progress_set_if_leased(self, job_id: str, run_id: str, progress: float | None, stage: str | None) -> bool: ...

    async def log_append_if_leased(self, batches: Sequence[LogBatch]) -> set[str]:
        """The run ids whose lines were taken: of those that hold their lease, or have completed their job. Lines come with
        their numbers; a number that is there already is left alone (a repeated flush is harmless). Their times are moved to
        the database's clock."""

    async def step_save_if_leased(
        self, job_id: str, run_id: str, name: str, fingerprint: str, result: str
    ) -> StepResult | None:
        """The result that is stored: of several writers the first one wins. None: the lease is lost."""

    async def step_get(self, job_id: str, name: str, fingerprint: str) -> StepResult | None: ...

    # -- people act
    # `tenant`: only if it is this tenant's, else JobNotFound. None: whoever's it is.
    async def job_cancel(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        """Cancelled if it was queued; marked *cancelling* if it runs. Raises JobNotFound, or JobConflict when it has ended
        (`already_completed`, `already_failed`, `already_cancelled`) or is being cancelled already (`already_cancelling`)."""

    async def job_retry_if_ended(self, job_id: str, by: str | None, *, tenant: str | None = None) -> Job[Any]:
        """A failed or cancelled job is queued anew at attempt 0. JobConflict: `job_queued`, `job_running`,
        `already_completed`, `duplicate_active` (its unique key is taken by a newer job)."""

    async def job_cancel_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        """One batch of `job_cancel`, newest first: of those that match at most `limit` that are queued or running."""

    async def job_retry_many(self, where: JobFilter, by: str | None, *, cursor: str | None, limit: int) -> Acted:
        """The same of `job_retry_if_ended`, for failed and cancelled ones."""

    # -- rescue and forget
    async def job_reap(self, *, backoff: Backoff, deadline_grace: float, limit: int, dead: Sequence[str] = ()) -> list[Reaped]:
        """Runs whose lease has expired, whose deadline passed more than `deadline_grace` ago, or whose worker is dead: one of
        `dead`, or (PostgreSQL) one whose session has ended and that has missed two heartbeats. Each is handled once. A worker
        that is dead and holds no job any more is forgotten."""

    async def order_heal(self) -> int:
        """Let go what waits behind an ordered job that is no longer there; how many. Only needed after odd accidents."""

    async def prune(self, retention: Retention, *, limit: int) -> dict[str, int]:
        """Delete at most `limit` rows per table; how many went: `jobs`, `events`, `logs`, `workers`."""

    # -- look
    async def job_get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        """Raises JobNotFound."""

    async def job_list(self, where: JobFilter, *, cursor: str | None, limit: int) -> list[Job[Any]]:
        """Newest first; `cursor` is the id of the last one seen."""

    async def job_glances(self, where: JobFilter, *, limit: int) -> list[Glance]:
        """Newest first."""

    async def job_count(self, where: JobFilter, cap: int) -> int:
        """How many match, counted to `cap` at the most."""

    async def job_counts(self, cap: int = 10_000, *, tenant: str | None = None) -> dict[str, int]:
        """How many per state, each counted to `cap` at the most. Of completed ones, where no index knows them, as many as are
        found among the oldest `cap` jobs."""

    async def queue_stats(
        self, *, tenant: str | None = None, deadline_grace: float = 0.0, cap: int = 10_000, look_at: int = 10_000
    ) -> list[QueueLoad]:
        """Every queue that has something in it, by name. Looks at no more than `cap` jobs of each queue, and of each kind; for
        what is stuck or slow at no more than `look_at` of those that run."""

    async def job_unserved(self, older_than: float, limit: int, *, look_at: int = 10_000) -> list[tuple[str, str, int]]:
        """(queue, task, how many) waiting longer than this and known to no live worker, among about the first `look_at`."""

    async def job_demand(self, *, enough: int, cap: int) -> list[Demand]:
        """What waits for a worker, scheduled jobs that have fallen due included. Counts no more than `cap` jobs of a tenant in
        a queue, and goes to no more tenants once it has found `enough` that may run."""

    async def run_list(self, job_id: str, *, tenant: str | None = None) -> list[Run]:
        """Every run, newest first, the current one included. Raises JobNotFound."""

    async def run_open(self, runs: Sequence[tuple[str, str]]) -> set[str]:
        """Of these (job id, run id): the run ids that may still get lines, because they are queued or running. A run that is
        not open has its last line stored."""

    async def event_list(
        self, *, job_id: str | None = None, tenant: str | None = None, before: int | None = None, limit: int
    ) -> list[Event]:
        """Newest first, by id; `before` is the id of the last one seen. Neither job nor tenant: everybody's."""

    async def log_read(self, run_id: str, where: LogFilter, *, limit: int, newest: bool = False) -> list[LogLine]:
        """In the order of their numbers: the first `limit` that match, or the last ones."""

    async def log_read_new(self, cursors: Sequence[tuple[str, int]], *, limit: int) -> list[LogLine]:
        """Of each (run id, number), the first `limit` lines after that number; all in one round trip, by run and number."""

    # -- tenants, plans, queues
    async def tenant_set(
        self,
        tenant: str,
        *,
        plan: str | Unchanged,
        max_running: int | Unchanged | None,
        queue_depth: int | Unchanged | None,
        timezone: str | Unchanged = UNCHANGED,
        by: str | None,
    ) -> Tenant:
        """Holds from the next claim on; writes an event and wakes workers."""

    async def tenant_get(self, tenant: str) -> Tenant:
        """Also one that nobody has set: it is on the free plan."""

    async def tenant_list(self, *, after: str | None, limit: int) -> list[Tenant]: ...

    async def tenant_pause(self, tenant: str, *, paused: bool, by: str | None) -> Tenant: ...

    def depths_statement(self, tenants: Sequence[str]) -> CallerStatement:
        """The same for the caller's connection; its rows are (tenant, queued, most)."""

    async def tenant_depths(self, tenants: Sequence[str]) -> dict[str, Depth]:
        """How many queued jobs each has, delayed ones included, counted to what it may have at the most."""

    async def tenant_running(self, tenant: str, limit: int) -> list[Job[Any]]:
        """Some of its running jobs, the oldest first."""

    async def plan_set(self, plan: Plan, *, by: str | None) -> Plan:
        """Writes an event and wakes workers."""

    async def plan_list(self) -> list[Plan]: ...

    async def queue_set(self, queue: str, *, max_running: int | None, by: str | None) -> Queue: ...

    async def queue_get(self, queue: str) -> Queue: ...

    async def queue_list(self) -> list[Queue]: ...

    async def queue_pause(self, queue: str, *, paused: bool, by: str | None) -> Queue: ...

    async def order_ahead(self, job_id: str) -> Job[Any] | None:
        """The job that this one waits for because of their ordering key."""

    # -- counters of all processes
    async def tally_add(self, tallies: Sequence[Tally]) -> None:
        """Add to the totals, and to the present minute. No two of them may have the same name, queue and label."""

    async def tally_totals(self) -> list[Tally]:
        """Since ever."""

    async def tally_recent(self, minutes: int) -> tuple[float, list[Tally]]:
        """The last minutes, at most 60, and the seconds that they cover: the present minute is a part of one."""

    # -- workers
    async def worker_save(self, worker: WorkerRow) -> None:
        """Insert, or change what it says of itself (`running`, `draining`, `last_seen_at`)."""

    async def worker_seen(self, worker: WorkerRow) -> float | None:
        """It lives: the same, but for `draining` of a worker that is known. A heartbeat comes from a thread of its own and may
        be late; it must not take back that the worker is going. Answers in how many seconds a recovery pass will find another
        worker dead; None: there is no sign of that."""

    async def worker_remove(self, worker_id: str) -> None: ...

    async def worker_list(self) -> list[WorkerRow]: ...

    # -- wake-ups
    async def wake(self) -> None:
        """Call every `wake` of `listen`, in all processes that can hear it: anything may have changed."""

    async def listen(self, wake: Wake, *, logs: bool = False, worker: str | None = None) -> Callable[[], Awaitable[None]]:
        """Call `wake` on what happens, until the returned function is awaited. Never raises for a lost connection:
        it reconnects and calls `wake("")`. `listening` tells whether hints come at all right now. With `logs`, also
        `log:<run id>` when lines of that run were written. The end of the connection of a `worker` is a sign that it died."""

    @property
    def pooled(self) -> bool:
        """Whether a connection pooler was found between us and the database."""

    @property
    def listening(self) -> bool: ...
