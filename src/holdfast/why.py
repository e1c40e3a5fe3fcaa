"""Why is this job waiting? One sentence that names the limit, the pause, the time, the job ahead, or the missing worker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.job import Hold, Job, State
from holdfast.store.protocol import Store, Tenant, WorkerRow

ALIVE_SECONDS = 60.0
NAMED_MAX = 3
WAITS = ("budget_exhausted", "budget_reserved", "breaker_open", "rate_limit")
"""What is not the job's fault, and costs it no attempt."""


class Why(msgspec.Struct):
    """`code` for programs, `sentence` for people."""

    code: str
    sentence: str
    details: dict[str, Any] = {}


class Machines(msgspec.Struct):
    """Where machines are started on demand: by whom, and how long one may take to come."""

    provider: str
    boot: float


async def why_job(store: Store, job_id: str, now: datetime | None = None, machines: Machines | None = None) -> Why:
    """The first thing that holds it, in the order in which they would have to go away."""
    job = await store.job_get(job_id)
    now = now or datetime.now(UTC)
    if job.state is not State.QUEUED:
        return _not_waiting(job)
    if job.hold is Hold.TIME and job.run_at is not None and job.run_at > now:
        return _scheduled(job, now)
    return (
        await _behind_another(store, job)
        or await _queue_holds(store, job)
        or await _tenant_holds(store, job)
        or await _no_worker(store, job, now, machines)
        or Why("claimable", "Nothing holds it: it starts as soon as a worker asks for work.")
    )


async def why_tenant(store: Store, tenant_id: str) -> Why:
    tenant = await store.tenant_get(tenant_id)
    return await why_of_tenant(store, tenant, (await store.tenant_depths([tenant_id]))[tenant_id].queued)


async def why_of_tenant(store: Store, tenant: Tenant, waiting: int) -> Why:
    """The same where it is known already how much waits."""
    held = await _tenant_at_limit_or_paused(store, tenant, waiting)
    if held is not None:
        return held
    if not waiting:
        return Why("nothing_waits", f"Tenant {tenant.id} has no queued jobs.")
    return Why(
        "not_limited",
        f"Tenant {tenant.id} has {waiting:,} queued jobs and runs {tenant.running} of the {tenant.limit} it may: "
        "no limit holds it, ask about one of its jobs.",
        {"waiting": waiting},
    )


def _not_waiting(job: Job[Any]) -> Why:
    if job.state is State.RUNNING:
        asked = " and was asked to cancel" if job.cancel_requested_at else ""
        return Why("running", f"It is not waiting: it runs on {job.locked_by}{asked}.", {"worker": job.locked_by})
    ended = (
        f"It is not waiting: it has {job.state}."
        if job.state is not State.CANCELLED
        else "It is not waiting: it was cancelled."
    )
    return Why(job.state.value, ended)


def _scheduled(job: Job[Any], now: datetime) -> Why:
    assert job.run_at is not None
    seconds = (job.run_at - now).total_seconds()
    when = f"{job.run_at:%Y-%m-%d %H:%M:%S} UTC (in {_span(seconds)})"
    details = {"run_at": job.run_at.isoformat(), "seconds": seconds}
    if job.error_code in WAITS:
        return Why(job.error_code, f"{job.error_message} It asks again at {when}.", details)
    if job.error_code:
        reason = f": {job.error_message}" if job.error_message else ""
        return Why(
            "retrying", f"Attempt {job.attempt} of {job.max_attempts} failed{reason}; it is tried again at {when}.", details
        )
    return Why("scheduled", f"It is scheduled for {when}.", details)


async def _behind_another(store: Store, job: Job[Any]) -> Why | None:
    ahead = await store.order_ahead(job.id) if job.order_key is not None else None
    if ahead is None:
        return None
    what = {
        State.RUNNING: "which runs now",
        State.QUEUED: f"which is {ahead.status} itself",
        State.FAILED: "which has failed and blocks those behind it until it is retried and then completed or cancelled",
    }.get(ahead.state, f"which has {ahead.state}")
    sentence = f"It waits for job {ahead.id} ({ahead.task}) with the same ordering key {job.order_key!r}, {what}."
    return Why("behind_ordered_job", sentence, {"job_id": ahead.id, "order_key": job.order_key})


async def _queue_holds(store: Store, job: Job[Any]) -> Why | None:
    queue = await store.queue_get(job.queue)
    if queue.paused_at is not None:
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        sentence = f"Queue {queue.name} is paused{by} since {queue.paused_at:%Y-%m-%d %H:%M:%S} UTC."
        return Why("queue_paused", sentence, {"paused_by": queue.paused_by})
    if queue.limit is not None and queue.running >= queue.limit:
        return Why(
            "queue_limit", f"Queue {queue.name} runs {queue.running} of {queue.limit} jobs at once.", {"limit": queue.limit}
        )
    return None


async def _tenant_holds(store: Store, job: Job[Any]) -> Why | None:
    if job.tenant is None:
        return None
    return await _tenant_at_limit_or_paused(store, await store.tenant_get(job.tenant), None)


async def _tenant_at_limit_or_paused(store: Store, tenant: Tenant, waiting: int | None) -> Why | None:
    if tenant.paused_at is not None:
        by = f" by {tenant.paused_by}" if tenant.paused_by else ""
        return Why("tenant_paused", f"Tenant {tenant.id} is paused{by} since {tenant.paused_at:%Y-%m-%d %H:%M:%S} UTC.")
    if tenant.running < tenant.limit:
        return None
    users = await store.tenant_running(tenant.id, NAMED_MAX)
    named = ", ".join(f"{user.task} {user.id}" for user in users) + (", …" if tenant.running > len(users) else "")
    held = f" and holds {waiting:,} queued jobs" if waiting else ""
    used = f" It is used by {named}." if users else ""
    return Why(
        "tenant_limit",
        f"Tenant {tenant.id} is at its limit of {tenant.limit} running (plan {tenant.plan}){held}.{used}",
        {"limit": tenant.limit, "running": tenant.running, "plan": tenant.plan, "jobs": [user.id for user in users]},
    )


async def _no_worker(store: Store, job: Job[Any], now: datetime, machines: Machines | None) -> Why | None:
    alive = [w for w in await store.worker_list() if _alive(w, now)]
    able = [w for w in alive if job.queue in w.queues and job.task in w.tasks]
    if not able and machines is not None:
        return await _no_machine(store, job, machines)
    if not able:
        others = f"; the {len(alive)} live workers serve other queues or tasks" if alive else "; no worker is alive"
        return Why(
            "no_worker", f"No worker serves queue {job.queue} and knows task {job.task}{others}.", {"workers": len(alive)}
        )
    slots, busy = sum(w.concurrency for w in able), sum(min(w.running, w.concurrency) for w in able)
    if busy >= slots:
        sentence = f"All {slots} slots of the {len(able)} workers that could run it are busy."
        return Why("workers_busy", sentence, {"workers": len(able), "slots": slots})
    return None


async def _no_machine(store: Store, job: Job[Any], machines: Machines) -> Why:
    """In words that name nobody else's job: machines serve all tenants."""
    turn = await store.shared("machine_turn_look")
    problem = (turn[0]["problem"] or "" if turn else "").removeprefix("machine.")
    if problem not in _PROBLEMS and await store.shared("machine_there", machines.provider, machines.boot):
        return Why("machine_starting", f"No worker serves queue {job.queue} yet; a machine is on its way.", {})
    reason = _PROBLEMS.get(problem, "one is asked for at the next recovery pass")
    sentence = f"No machine is there or starting to serve queue {job.queue}: {reason}."
    return Why("no_machine", sentence, {"provider": machines.provider, "problem": problem or None})


_PROBLEMS = {
    "at_maximum": "as many are up as there may be, and serve other work",
    "denied": "the machine provider refuses our token, which somebody has to mend",
    "quota": "the account of the machine provider may have no more machines",
    "start_failed": "the machine provider did not start one, and is asked again at the next recovery pass",
}


def _alive(worker: WorkerRow, now: datetime) -> bool:
    return (
        worker.last_seen_at is not None and not worker.draining and (now - worker.last_seen_at).total_seconds() < ALIVE_SECONDS
    )


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
