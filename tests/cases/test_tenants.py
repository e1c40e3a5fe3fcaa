"""Tenants, plans and queues as an application sets them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import InvalidOption, QueueFull
from tests.cases.steps import drain, working
from tests.support.waiting import until

Change = Callable[[Holdfast], Awaitable[object]]


async def change_events(hf: Holdfast) -> list[tuple[str, str | None, str | None]]:
    """What was written down about tenants and queues: type, actor, tenant."""
    table = "holdfast.events" if hf.store.name == "postgres" else "holdfast_events"
    async with hf.transaction() as tx:
        rows = await tx.fetch(f"SELECT type, actor, tenant FROM {table} WHERE job_id IS NULL ORDER BY id")
    return [(row["type"], row["actor"], row["tenant"]) for row in rows]


# -- set, get, list, pause, resume ---------------------------------------------------------------------------------------


async def test_a_tenant_is_set_read_and_listed(hf: Holdfast) -> None:
    """By plan or by numbers of its own; None gives a number back to the plan; each change has its event."""
    assert (await hf.tenants.set("acme", plan="pro", by="ana")).limit == 10
    assert (await hf.tenants.set("acme", limit=4, queue_depth=7)).plan == "pro"
    acme = await hf.tenants.get("acme")
    assert (acme.limit, acme.queue_depth, acme.running, acme.paused_at) == (4, 7, 0, None)
    assert (await hf.tenants.set("acme", limit=None)).limit == 10
    await hf.tenants.set("zeta", plan="starter")
    assert [(tenant.id, tenant.plan) for tenant in await hf.tenants.list()] == [("acme", "pro"), ("zeta", "starter")]
    assert [tenant.id for tenant in await hf.tenants.list(after="acme", limit=1)] == ["zeta"]
    assert (await change_events(hf))[0] == ("tenant.changed", "ana", "acme")
    assert len(await change_events(hf)) == 4


async def test_a_tenant_that_nobody_has_set_is_on_the_free_plan(hf: Holdfast) -> None:
    """And does not appear in the list for having been asked about."""
    found = await hf.tenants.get("nobody")
    assert (found.plan, found.limit, found.running) == ("free", 1, 0)
    assert await hf.tenants.list() == []


def test_sync_programs_set_and_read_tenants(database_url: str) -> None:
    """The same verbs without a loop."""
    hf = Holdfast(database_url)
    try:
        assert hf.tenants.set_sync("acme", plan="pro").limit == 10
        assert hf.tenants.get_sync("acme").plan == "pro"
    finally:
        hf.close()


@pytest.mark.case("queue-4")
async def test_a_worker_runs_as_many_of_a_tenant_as_its_plan_allows(hf: Holdfast) -> None:
    """Free: one at a time; pro: ten at a time and no more; all of them in the end, although no slot was missing."""
    running: dict[str | None, int] = {}
    most: dict[str | None, int] = {}
    pro_is_full = asyncio.Event()

    @hf.task
    async def work() -> None:
        tenant = current().tenant
        running[tenant] = running.get(tenant, 0) + 1
        most[tenant] = max(most.get(tenant, 0), running[tenant])
        if running.get("pro") == 10:
            pro_is_full.set()
        await pro_is_full.wait()
        running[tenant] -= 1

    await hf.tenants.set("pro", plan="pro")
    await hf.enqueue_many([work.options(tenant=tenant).job() for tenant in ("free", "pro") for _ in range(25)])
    assert (await drain(hf, concurrency=50)).jobs == 50
    assert most == {"free": 1, "pro": 10}


@pytest.mark.case("C33")
async def test_a_raised_plan_is_used_by_a_worker_that_waits(hf: Holdfast) -> None:
    """It is told, and need not poll: more start at once."""
    go, running = asyncio.Event(), []

    @hf.task
    async def work(number: int) -> None:
        running.append(number)
        await go.wait()

    await hf.enqueue_many([work.options(tenant="acme").job(number) for number in range(5)])
    async with working(hf):
        await until(lambda: running)
        assert len(running) == 1
        await hf.tenants.set("acme", plan="starter")
        await until(lambda: len(running) == 3)
        go.set()
        await until(lambda: len(running) == 5)


@pytest.mark.parametrize("what", ["tenants", "queues"])
async def test_a_pause_holds_back_what_is_queued_until_it_is_lifted(hf: Holdfast, what: str) -> None:
    """The running worker takes nothing meanwhile, and starts at once when it ends; both are written down."""

    @hf.task(queue="mail")
    async def work() -> str:
        return "done"

    paused, name = getattr(hf, what), {"tenants": "acme", "queues": "mail"}[what]
    found = await paused.pause(name, by="ana")
    assert (found.paused_by, found.paused_at is not None) == ("ana", True)
    held = await work.options(tenant="acme").enqueue()
    other = await work.options(tenant="other", queue="other").enqueue()
    async with working(hf, queues=["mail", "other"]):
        assert await other.result(timeout=40) == "done"
        assert (await hf.get(held.id)).state is State.QUEUED
        assert (await paused.resume(name, by="bo")).paused_at is None
        assert await held.result(timeout=40) == "done"
    kind, tenant = what[:-1], "acme" if what == "tenants" else None
    assert await change_events(hf) == [(f"{kind}.paused", "ana", tenant), (f"{kind}.resumed", "bo", tenant)]


@pytest.mark.case("C35")
async def test_a_worker_beside_many_full_tenants_finds_new_work_at_once_and_ends_when_idle(hf: Holdfast) -> None:
    """It need not poll for a job that arrives, and what only others can finish does not keep it from ending."""

    @hf.task
    async def work() -> str:
        return "done"

    names = [f"tenant-{number:04}" for number in range(600)]
    await hf.enqueue_many([work.options(tenant=name).job() for name in names for _ in range(2)])
    taken = await hf.store.job_claim(worker="elsewhere", machine=None, queues=["default"], tasks=["work"], limit=600, hops=700)
    assert len(taken.jobs) == 600
    async with working(hf):
        for tenant in ("tenant-0000a", "zeta", None):
            assert await (await work.options(tenant=tenant).enqueue()).result(timeout=40) == "done"
    assert (await drain(hf)).jobs == 0


async def test_a_place_that_frees_in_another_workers_queue_is_used_before_long(database_url: str) -> None:
    """The worker that ends the tenant's job does not serve the queue where its next one waits, and cannot take it."""
    hf = Holdfast(database_url, poll_busy=0.05)
    started, go = asyncio.Event(), asyncio.Event()

    @hf.task(queue="one")
    async def first() -> None:
        started.set()
        await go.wait()

    @hf.task(queue="two")
    async def second() -> str:
        return "done"

    await first.options(tenant="acme").enqueue()
    async with working(hf, queues=["one"]), working(hf, queues=["two"]):
        await started.wait()
        job = await second.options(tenant="acme").enqueue()
        assert await (await second.enqueue()).result(timeout=40) == "done", "the other worker has looked since"
        go.set()
        assert await job.result(timeout=40) == "done"
    await hf.aclose()


async def test_a_paused_tenants_running_job_goes_on(hf: Holdfast) -> None:
    """A pause is no cancel."""
    started, go = asyncio.Event(), asyncio.Event()

    @hf.task
    async def work() -> str:
        started.set()
        await go.wait()
        return "done"

    job = await work.options(tenant="acme").enqueue()
    async with working(hf):
        await started.wait()
        await hf.tenants.pause("acme")
        go.set()
        assert await job.result(timeout=40) == "done"


async def test_a_queue_is_limited_whoever_the_jobs_belong_to(hf: Holdfast) -> None:
    """However many slots and tenants there are; the limit can be read, listed and taken away."""
    running, most = 0, 0

    @hf.task(queue="mail")
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.wait([asyncio.create_task(hf.queues.get("mail"))])
        running -= 1

    assert (await hf.queues.set("mail", limit=2, by="ana")).limit == 2
    await hf.enqueue_many([work.options(tenant=f"tenant-{n}" if n % 3 else None).job() for n in range(30)])
    assert (await drain(hf, concurrency=20)).jobs == 30
    assert most == 2
    assert [(queue.name, queue.limit, queue.running) for queue in await hf.queues.list()] == [("mail", 2, 0)]
    assert (await hf.queues.set("mail", limit=None)).limit is None
    assert await change_events(hf) == [("queue.changed", "ana", None), ("queue.changed", None, None)]


async def test_a_plan_can_be_added_and_redefined(hf: Holdfast) -> None:
    """Tenants of it follow."""
    await hf.plans.set("team", running=2, queue_depth=50, weight=5)
    assert (await hf.tenants.set("acme", plan="team")).limit == 2
    await hf.plans.set("team", running=6, queue_depth=50)
    assert (await hf.tenants.get("acme")).limit == 6
    assert [(p.name, p.max_running, p.queue_depth, p.weight) for p in await hf.plans.list() if p.name == "team"] == [
        ("team", 6, 50, 1)
    ]


WRONG: dict[str, Change] = {
    "no such plan": lambda hf: hf.tenants.set("acme", plan="gold"),
    "plan of another type": lambda hf: hf.tenants.set("acme", plan=["pro"]),  # type: ignore[arg-type]
    "plan None": lambda hf: hf.tenants.set("acme", plan=None),  # type: ignore[arg-type]
    "negative limit": lambda hf: hf.tenants.set("acme", limit=-1),
    "limit in words": lambda hf: hf.tenants.set("acme", limit="10"),  # type: ignore[arg-type]
    "limit true": lambda hf: hf.tenants.set("acme", limit=True),
    "limit that no database holds": lambda hf: hf.tenants.set("acme", limit=2**31),
    "half a limit": lambda hf: hf.tenants.set("acme", limit=1.5),  # type: ignore[arg-type]
    "negative depth": lambda hf: hf.tenants.set("acme", queue_depth=-1),
    "tenant without a name": lambda hf: hf.tenants.set("", plan="pro"),
    "tenant with NUL": lambda hf: hf.tenants.pause("a\x00b"),
    "tenant too long": lambda hf: hf.tenants.resume("x" * 201),
    "tenant of another type": lambda hf: hf.tenants.get(7),  # type: ignore[arg-type]
    "person with NUL": lambda hf: hf.tenants.set("acme", plan="pro", by="\x00"),
    "person of another type": lambda hf: hf.tenants.pause("acme", by=7),  # type: ignore[arg-type]
    "list of nothing": lambda hf: hf.tenants.list(limit=0),
    "list of too many": lambda hf: hf.tenants.list(limit=10_000),
    "list after nobody": lambda hf: hf.tenants.list(after=""),
    "plan without a name": lambda hf: hf.plans.set("", running=1, queue_depth=1),
    "plan without a limit": lambda hf: hf.plans.set("team", running=None, queue_depth=1),  # type: ignore[arg-type]
    "plan with a negative depth": lambda hf: hf.plans.set("team", running=1, queue_depth=-1),
    "plan without weight": lambda hf: hf.plans.set("team", running=1, queue_depth=1, weight=0),
    "plan of too much weight": lambda hf: hf.plans.set("team", running=1, queue_depth=1, weight=101),
    "queue without a name": lambda hf: hf.queues.set("", limit=1),
    "queue with a negative limit": lambda hf: hf.queues.set("mail", limit=-1),
    "queue with NUL": lambda hf: hf.queues.resume("\x00"),
    "queue of another type": lambda hf: hf.queues.get(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_what_cannot_work_is_refused_and_changes_nothing(hf: Holdfast, wrong: str) -> None:
    """A typed error that says what is allowed, before anything is written."""
    with pytest.raises(InvalidOption, match=r"plan|whole number|named by|between"):
        await WRONG[wrong](hf)
    assert (await hf.tenants.list(), await hf.queues.list(), await change_events(hf)) == ([], [], [])
    assert [plan.name for plan in await hf.plans.list()] == ["free", "starter", "pro"]


async def test_an_unknown_plan_is_answered_with_those_there_are(hf: Holdfast) -> None:
    """So that the caller can choose."""
    with pytest.raises(InvalidOption, match=r"There is no plan called 'gold'; the plans are free, pro, starter\."):
        await hf.tenants.set("acme", plan="gold")


async def test_delayed_jobs_count_among_those_that_wait(hf_at: Holdfast, database_url: str, clock: ManualClock) -> None:
    """A tenant's depth holds for jobs with a delay too, before they fall due and after, whichever process asks."""

    async def work() -> None: ...

    first = hf_at.task(work)
    await hf_at.tenants.set("acme", queue_depth=3)
    for _ in range(3):
        await first.options(tenant="acme", delay=60).enqueue()
    for _ in range(2):
        other = Holdfast(database_url, clock=clock)
        task = other.task(work)
        for delay in (0, 60):
            with pytest.raises(QueueFull):
                await task.options(tenant="acme", delay=delay).enqueue()
        await other.aclose()
        clock.advance(61)
    assert (await hf_at.store.job_counts())["queued"] == 3
