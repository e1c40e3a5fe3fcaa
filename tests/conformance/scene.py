"""The few sentences in which the tests of this folder are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.ids import new_job_id, new_run_id
from holdfast.job import Event, LogLine, State
from holdfast.store.protocol import (
    UNCHANGED,
    Backoff,
    Beat,
    Claim,
    Claimed,
    Completion,
    Departure,
    Inserted,
    Leaving,
    LogBatch,
    LogFilter,
    NewJob,
    Reaped,
    Store,
)
from tests.support.waiting import until

QUEUE = "mail"
TASK = "send_receipt"
LEASE = 300.0
GRACE = 30.0
LOST = "lost"

LEAVINGS = tuple(Leaving)


def new_job(**fields: Any) -> NewJob:
    usual: dict[str, Any] = {
        "id": new_job_id(),
        "run_id": new_run_id(),
        "queue": QUEUE,
        "task": TASK,
        "args": msgspec.Raw(b"{}"),
        "max_attempts": 3,
        "lease_seconds": LEASE,
    }
    return NewJob(**{**usual, **fields})


async def insert(store: Store, **fields: Any) -> Inserted:
    (inserted,) = await store.job_insert_many([new_job(**fields)])
    return inserted


async def insert_some(store: Store, count: int, **fields: Any) -> list[str]:
    """Their ids, oldest first."""
    return [job.id for job in await store.job_insert_many([new_job(**fields) for _ in range(count)])]


async def claim(
    store: Store,
    limit: int = 1,
    *,
    queues: Sequence[str] = (QUEUE,),
    tasks: Sequence[str] = (TASK,),
    worker: str = "worker-1",
    machine: str | None = None,
    **way: Any,
) -> Claim:
    """`way`: cursors, hops, hints."""
    return await store.job_claim(worker=worker, machine=machine, queues=queues, tasks=tasks, limit=limit, **way)


async def claimed_ids(store: Store, limit: int = 1, **options: Any) -> list[str]:
    return [job.id for job in (await claim(store, limit, **options)).jobs]


async def claimed_tenants(store: Store, limit: int = 1, **options: Any) -> list[str | None]:
    return [job.tenant for job in (await claim(store, limit, **options)).jobs]


async def set_plan(store: Store, plan: str, *tenants: str) -> None:
    for tenant in tenants:
        await store.tenant_set(tenant, plan=plan, max_running=UNCHANGED, queue_depth=UNCHANGED, by=None)


async def set_limit(store: Store, limit: int | None, *tenants: str) -> None:
    for tenant in tenants:
        await store.tenant_set(tenant, plan=UNCHANGED, max_running=limit, queue_depth=UNCHANGED, by=None)


async def start(store: Store, **fields: Any) -> Claimed:
    """A new job that a worker holds."""
    inserted = await insert(store, **fields)
    (run,) = (await claim(store, queues=[fields.get("queue", QUEUE)], tasks=[fields.get("task", TASK)])).jobs
    assert run.id == inserted.id
    return run


async def complete(store: Store, run: Claimed, result: str | None = "null") -> bool:
    completion = Completion(run.id, run.run_id, result, run.order_key is not None)

    async def tried() -> set[str] | None:
        return await store.job_complete_if_leased([completion]) or await _lost(store, run)

    return bool(await until(tried) - {LOST})


async def leave(store: Store, run: Claimed, how: Leaving, **fields: Any) -> State | None:
    """What the job became; None if the lease was lost."""
    departure = Departure(id=run.id, run_id=run.run_id, how=how, **fields)

    async def tried() -> dict[str, State] | set[str] | None:
        return await store.job_leave_if_leased([departure]) or await _lost(store, run)

    left = await until(tried)
    return left[run.run_id] if isinstance(left, dict) else None


async def _lost(store: Store, run: Claimed) -> set[str] | None:
    """None: another session had locked the row, as a claim does in passing."""
    return None if await store.run_states([(run.id, run.run_id)]) == {run.run_id: State.RUNNING} else {LOST}


async def beat(store: Store, run: Claimed, lease_seconds: float = LEASE) -> bool:
    return bool(await store.lease_extend_if_held([Beat(run.id, run.run_id, lease_seconds)]))


async def reap(store: Store, limit: int = 100, backoff: Backoff = Backoff()) -> list[Reaped]:  # noqa: B008
    return await store.job_reap(backoff=backoff, deadline_grace=GRACE, limit=limit)


async def fail(store: Store, **fields: Any) -> Claimed:
    """A new job that has failed for good."""
    run = await start(store, **fields)
    assert await leave(store, run, Leaving.FAIL, error_code="boom", error_message="it broke") is State.FAILED
    return run


def line(run: Claimed, no: int, message: str = "hello", **fields: Any) -> LogLine:
    return LogLine(run_id=run.run_id, no=no, level=fields.pop("level", "info"), message=message, **fields)


async def state_of(store: Store, job_id: str) -> State:
    return (await store.job_get(job_id)).state


async def event_types(store: Store, job_id: str) -> list[str]:
    return [event.type for event in await events_of(store, job_id)]


async def events_of(store: Store, job_id: str) -> list[Event]:
    """Oldest first."""
    return (await store.event_list(job_id=job_id, limit=1000))[::-1]


async def append(store: Store, run: Claimed, *lines: LogLine) -> bool:
    """Whether they were taken."""
    return run.run_id in await store.log_append_if_leased([LogBatch(run.id, run.run_id, lines)])


async def log_of(store: Store, run: Claimed, *, limit: int = 1000, newest: bool = False, **where: Any) -> list[LogLine]:
    return await store.log_read(run.run_id, LogFilter(**where), limit=limit, newest=newest)


def table(store: Store, name: str) -> str:
    """The name of one of our tables: a schema of its own on PostgreSQL, a prefix on SQLite."""
    return f"holdfast.{name}" if store.name == "postgres" else f"holdfast_{name}"


async def by_hand(store: Store, sql: str, *args: Any) -> list[dict[str, Any]]:
    """A statement past all rules, with `{jobs}` and so on for our tables."""
    names = {
        name: table(store, name) for name in ("jobs", "runs", "events", "logs", "steps", "workers", "migrations", "tenants")
    }
    async with store.transaction() as tx:
        return await tx.fetch(sql.format(**names), *args)
