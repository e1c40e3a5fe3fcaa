"""Limits by tenant, plan and queue, and pauses: exact, and in force from the next claim on."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from holdfast.clock import ManualClock
from holdfast.job import State
from holdfast.store.protocol import UNCHANGED, Claimed, JobFilter, Leaving, NewJob, Plan, Store
from holdfast.tx import caller_of
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import (
    LEASE,
    by_hand,
    claim,
    claimed_ids,
    claimed_tenants,
    complete,
    insert,
    insert_some,
    leave,
    new_job,
    reap,
    set_limit,
    set_plan,
    start,
)


@pytest.mark.case("queue-4")
@pytest.mark.parametrize(("plan", "running"), [(None, 1), ("free", 1), ("starter", 3), ("pro", 10)])
async def test_a_tenant_runs_as_many_as_its_plan_allows(store: Store, plan: str | None, running: int) -> None:
    """One that nobody has set is on the free plan; the rest stays queued until a run ends."""
    if plan:
        await set_plan(store, plan, "acme")
    await insert_some(store, 25, tenant="acme")
    runs = (await claim(store, 100)).jobs
    assert len(runs) == running
    assert (await claim(store, 100)).jobs == []
    await complete(store, runs[0])
    assert len((await claim(store, 100)).jobs) == 1


async def test_a_tenants_own_limit_beats_its_plan(store: Store) -> None:
    """More or less than the plan says, and None gives it back to the plan."""
    await set_plan(store, "pro", "more", "less")
    await set_limit(store, 12, "more")
    await set_limit(store, 2, "less")
    await store.job_insert_many([new_job(tenant=tenant) for tenant in ("more", "less") for _ in range(20)])
    tenants = await claimed_tenants(store, 100)
    assert (tenants.count("more"), tenants.count("less")) == (12, 2)
    await set_limit(store, None, "less")
    assert await claimed_tenants(store, 100) == ["less"] * 8


async def test_a_limit_of_nought_lets_nothing_run(store: Store) -> None:
    """Of that tenant; the others are served."""
    await set_limit(store, 0, "acme")
    await insert_some(store, 3, tenant="acme")
    other = await insert(store, tenant="other")
    assert [other.id] == await claimed_ids(store, 10)
    await set_limit(store, 1, "acme")
    assert len(await claimed_ids(store, 10)) == 1


async def test_a_limit_spans_queues(store: Store) -> None:
    """Within one claim and between claims: what runs in one queue counts in the other."""
    await set_plan(store, "starter", "acme")
    await insert_some(store, 2, tenant="acme", queue="first")
    await insert_some(store, 5, tenant="acme", queue="second")
    assert len(await claimed_ids(store, 100, queues=["first", "second"])) == 3
    assert (await claim(store, 100, queues=["second"])).jobs == []


@pytest.mark.case("C33")
async def test_a_changed_plan_holds_from_the_next_claim(store: Store, open_another: OpenAnother) -> None:
    """Up: more at once. Down: what runs goes on, and nothing starts until enough of it has ended."""
    other = open_another()
    await insert_some(store, 30, tenant="acme")
    runs = (await claim(store, 100)).jobs
    await set_plan(other, "pro", "acme")
    runs += (await claim(store, 100)).jobs
    assert len(runs) == 10
    await set_plan(other, "starter", "acme")
    for run in runs[:7]:
        await complete(store, run)
        assert (await claim(store, 100)).jobs == []
    await complete(store, runs[7])
    assert len((await claim(store, 100)).jobs) == 1


async def test_a_plan_that_is_redefined_holds_for_all_its_tenants(store: Store) -> None:
    """From the next claim on, also for those that nobody has set."""
    await store.plan_set(Plan("free", max_running=2, queue_depth=10), by=None)
    await store.job_insert_many([new_job(tenant=tenant) for tenant in ("a", "b") for _ in range(5)])
    assert sorted(await claimed_tenants(store, 100)) == ["a", "a", "b", "b"]


async def test_jobs_without_a_tenant_have_no_limit(store: Store) -> None:
    """They run beside tenants that have one."""
    await insert_some(store, 30)
    await insert_some(store, 5, tenant="acme")
    tenants = await claimed_tenants(store, 100)
    assert (tenants.count(None), tenants.count("acme")) == (30, 1)


# -- every way out gives the place back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["complete", *Leaving])
async def test_every_end_of_a_run_frees_its_place_once(store: Store, end: str) -> None:
    """Completed, failed, cancelled, snoozed, retried or released: one more may run, and only one."""
    await set_plan(store, "starter", "acme")
    await insert_some(store, 10, tenant="acme")
    runs = (await claim(store, 100)).jobs
    await (complete(store, runs[0]) if end == "complete" else leave(store, runs[0], Leaving(end), delay=60.0))
    assert len((await claim(store, 100)).jobs) == 1
    assert (await claim(store, 100)).jobs == []


async def test_a_reaped_run_frees_its_place_once(store: Store, clock: ManualClock) -> None:
    """A worker that died does not hold its tenant up for ever, and its late answers count for nothing."""
    await insert_some(store, 3, tenant="acme", backoff=[60.0])
    (dead,) = (await claim(store, 100)).jobs
    clock.advance(LEASE + 1)
    assert (await claim(store, 100)).jobs == []
    await reap(store)
    assert not await complete(store, dead)
    assert len((await claim(store, 100)).jobs) == 1
    assert (await claim(store, 100)).jobs == []


async def test_a_run_that_is_being_cancelled_keeps_its_place_until_it_stops(store: Store) -> None:
    """It still runs."""
    run = await start(store, tenant="acme")
    waiting = await insert(store, tenant="acme")
    await store.job_cancel(run.id, "ana")
    assert (await claim(store, 10)).jobs == []
    await leave(store, run, Leaving.CANCEL)
    assert [waiting.id] == await claimed_ids(store, 10)


# -- pauses --------------------------------------------------------------------------------------------------------------


async def test_a_paused_tenant_is_not_claimed_from(store: Store, clock: ManualClock) -> None:
    """What runs goes on and may end; after the pause the rest is handed out."""
    await set_plan(store, "pro", "acme")
    run = await start(store, tenant="acme")
    waiting = await insert_some(store, 2, tenant="acme")
    other = await insert(store, tenant="other")
    paused = await store.tenant_pause("acme", paused=True, by="ana")
    assert (paused.paused_at, paused.paused_by, paused.running) == (clock.now(), "ana", 1)
    assert [other.id] == await claimed_ids(store, 10)
    assert await complete(store, run)
    assert (await claim(store, 10, hints=["acme"])).jobs == []
    resumed = await store.tenant_pause("acme", paused=False, by="bo")
    assert (resumed.paused_at, resumed.paused_by, resumed.plan) == (None, None, "pro")
    assert waiting == await claimed_ids(store, 10)


async def test_a_second_pause_keeps_the_first_ones_time_and_name(store: Store, clock: ManualClock) -> None:
    """Since when, and by whom, is what people want to know."""
    await store.tenant_pause("acme", paused=True, by="ana")
    await store.queue_pause("mail", paused=True, by="ana")
    first = clock.now()
    clock.advance(60)
    tenant = await store.tenant_pause("acme", paused=True, by="bo")
    queue = await store.queue_pause("mail", paused=True, by="bo")
    assert (tenant.paused_at, tenant.paused_by) == (queue.paused_at, queue.paused_by) == (first, "ana")


async def test_a_paused_queue_is_not_claimed_from(store: Store) -> None:
    """Other queues are served, and its limit outlives the pause."""
    await store.queue_set("mail", max_running=2, by=None)
    await insert_some(store, 3)
    other = await insert(store, queue="other")
    assert (await store.queue_pause("mail", paused=True, by="ana")).paused_by == "ana"
    assert [other.id] == await claimed_ids(store, 10, queues=["mail", "other"])
    resumed = await store.queue_pause("mail", paused=False, by="ana")
    assert (resumed.limit, resumed.paused_at) == (2, None)
    assert len(await claimed_ids(store, 10)) == 2


# -- queues --------------------------------------------------------------------------------------------------------------


async def test_a_queue_runs_no_more_than_its_limit(store: Store) -> None:
    """Whoever the jobs belong to; a run that ends makes room for one, and None takes the limit away."""
    await store.queue_set("mail", max_running=3, by=None)
    await store.job_insert_many([new_job(tenant=f"t{n % 5}" if n % 2 else None) for n in range(20)])
    first = await claim(store, 2)
    second = await claim(store, 10)
    assert (len(first.jobs), len(second.jobs)) == (2, 1)
    assert (await claim(store, 10)).turns[0].full
    await complete(store, first.jobs[0])
    assert len(await claimed_ids(store, 10)) == 1
    await store.queue_set("mail", max_running=None, by=None)
    assert len(await claimed_ids(store, 3)) == 3


async def test_a_queues_limit_leaves_the_other_queues_alone(store: Store) -> None:
    """What a full queue cannot take is taken from the next."""
    await store.queue_set("narrow", max_running=1, by=None)
    await insert_some(store, 5, queue="narrow")
    await insert_some(store, 5, queue="wide")
    found = await claim(store, 5, queues=["narrow", "wide"])
    assert [job.queue for job in found.jobs] == ["narrow", "wide", "wide", "wide", "wide"]
    assert [(turn.queue, turn.full) for turn in found.turns] == [("narrow", True), ("wide", False)]


async def test_a_queues_limit_of_nought_stops_it(store: Store) -> None:
    """As a pause does."""
    await store.queue_set("mail", max_running=0, by=None)
    await insert_some(store, 2)
    assert (await claim(store, 10)).jobs == []


# -- what is told --------------------------------------------------------------------------------------------------------


async def test_tenants_plans_and_queues_tell_what_holds(store: Store) -> None:
    """Also those that nobody has set."""
    assert [(p.name, p.max_running, p.weight) for p in await store.plan_list()] == [
        ("free", 1, 1),
        ("starter", 3, 1),
        ("pro", 10, 1),
    ]
    unset = await store.tenant_get("nobody")
    assert (unset.plan, unset.limit, unset.queue_depth, unset.running) == ("free", 1, 1000, 0)
    queue = await store.queue_get("mail")
    assert (queue.limit, queue.running, queue.paused_at) == (None, 0, None)

    await store.queue_set("mail", max_running=7, by=None)
    await set_plan(store, "pro", "b", "a")
    await store.tenant_set("a", plan=UNCHANGED, max_running=4, queue_depth=50, by="ana")
    running = await insert_some(store, 3, tenant="a")
    await claim(store, 10)
    found = await store.tenant_get("a")
    assert (found.plan, found.limit, found.queue_depth, found.running) == ("pro", 4, 50, 3)
    assert [tenant.id for tenant in await store.tenant_list(after=None, limit=10)] == ["a", "b"]
    assert [tenant.id for tenant in await store.tenant_list(after="a", limit=10)] == ["b"]
    assert [tenant.id for tenant in await store.tenant_list(after=None, limit=1)] == ["a"]
    assert running[:2] == [job.id for job in await store.tenant_running("a", 2)]
    assert [(queue.name, queue.limit, queue.running) for queue in await store.queue_list()] == [("mail", 7, 3)]


async def test_what_is_not_mentioned_stays(store: Store) -> None:
    """A new plan keeps the tenant's own numbers; a number of its own keeps the plan and the pause."""
    await store.tenant_set("a", plan="starter", max_running=2, queue_depth=5, by=None)
    await store.tenant_pause("a", paused=True, by="ana")
    await set_plan(store, "pro", "a")
    found = await store.tenant_get("a")
    assert (found.plan, found.limit, found.queue_depth, found.paused_by) == ("pro", 2, 5, "ana")
    await store.tenant_set("a", plan=UNCHANGED, max_running=None, queue_depth=None, by=None)
    found = await store.tenant_get("a")
    assert (found.plan, found.limit, found.queue_depth, found.paused_by) == ("pro", 10, 100_000, "ana")


async def test_every_change_is_written_down_with_its_author(store: Store) -> None:
    """Who changed which tenant or queue, in the order it happened, with what it is now."""
    await store.tenant_set("a", plan="pro", max_running=4, queue_depth=UNCHANGED, by="ana")
    await store.tenant_pause("a", paused=True, by="bo")
    await store.tenant_pause("a", paused=False, by="cy")
    await store.queue_set("mail", max_running=7, by="di")
    await store.queue_pause("mail", paused=True, by="ed")
    await store.queue_pause("mail", paused=False, by="fo")
    rows = await by_hand(store, "SELECT type, actor, tenant, job_id, CAST(data AS text) AS data FROM {events} ORDER BY id")
    assert [(row["type"], row["actor"], row["tenant"], row["job_id"]) for row in rows] == [
        ("tenant.changed", "ana", "a", None),
        ("tenant.paused", "bo", "a", None),
        ("tenant.resumed", "cy", "a", None),
        ("queue.changed", "di", None, None),
        ("queue.paused", "ed", None, None),
        ("queue.resumed", "fo", None, None),
    ]
    data = [row["data"].replace(" ", "") for row in rows]
    assert sorted(data[0].strip("{}").split(",")) == [
        '"max_running":4', '"plan":"pro"', '"queue_depth":null', '"timezone":"UTC"',
    ]  # fmt: skip
    assert all('"queue":"mail"' in said for said in data[3:])


async def test_what_waits_is_counted_by_tenant(store: Store) -> None:
    """Queued jobs of all queues, delayed ones too, beside what the tenant may have; also on a caller's connection."""
    await store.tenant_set("a", plan="pro", max_running=UNCHANGED, queue_depth=50, by=None)
    await insert_some(store, 3, tenant="a")
    await insert_some(store, 2, tenant="a", queue="other")
    await insert(store, tenant="a", delay=60.0)
    await claim(store, 1)
    expected = {"a": (5, 50), "b": (0, 1000)}
    assert {name: (depth.queued, depth.most) for name, depth in (await store.tenant_depths(["a", "b"])).items()} == expected
    async with store.transaction() as tx:
        rows = await caller_of(tx).run_async(store.depths_statement(["a", "b"]))
    assert {row[0]: (row[1], row[2]) for row in rows} == expected


async def test_whom_an_ordered_job_waits_for_is_told(store: Store) -> None:
    """The one that runs, else the oldest; nobody for the head itself or a job without a key."""
    head = await start(store, tenant="a", order_key="k")
    second, third = await insert_some(store, 2, tenant="a", order_key="k")
    await insert(store, tenant="b", order_key="k")
    plain = await insert(store, tenant="a")
    for job_id, ahead in ((second, head.id), (third, head.id), (head.id, None), (plain.id, None)):
        found = await store.order_ahead(job_id)
        assert (found and found.id) == ahead
    await complete(store, head)
    found = await store.order_ahead(third)
    assert found is not None and found.id == second


# -- many at once --------------------------------------------------------------------------------------------------------


async def hammer(jobs: list[NewJob], stores: list[Store], sampler: Store) -> list[Counter[str | None]]:
    """Twelve claimers take and finish these jobs as fast as they can; how many of each tenant ran at every look."""
    done: list[str] = []
    samples: list[Counter[str | None]] = []

    async def work(worker: int) -> None:
        ours = stores[worker % len(stores)]
        while len(done) < len(jobs):
            runs = (await claim(ours, 4, worker=f"worker-{worker}")).jobs
            done.extend([run.id for run in runs if await complete(ours, run)])

    async def sample() -> None:
        while len(done) < len(jobs):
            running = await sampler.job_list(JobFilter(state=State.RUNNING), cursor=None, limit=200)
            samples.append(Counter(job.tenant for job in running))

    await asyncio.wait_for(asyncio.gather(sample(), *(work(n) for n in range(12))), 100)
    assert sorted(done) == sorted(job.id for job in jobs)
    return samples


@pytest.mark.case("C31")
async def test_claims_at_the_same_time_never_exceed_a_tenants_limit(store: Store, open_another: OpenAnother) -> None:
    """Whoever wins, at no instant do more run than the plan allows; a sampler of its own looks all the time."""
    limits = {"free": 1, "starter": 3, "pro": 10}
    for plan in limits:
        await set_plan(store, plan, plan)
    jobs = [new_job(tenant=tenant) for _ in range(60) for tenant in limits]
    await store.job_insert_many(jobs)
    samples = await hammer(jobs, [open_another() for _ in range(4)], open_another())
    most = {tenant: max(seen[tenant] for seen in samples) for tenant in limits}
    assert all(most[tenant] <= limits[tenant] for tenant in limits), most
    assert sum(most.values()) > 0


async def test_claims_at_the_same_time_never_exceed_a_queues_limit(store: Store, open_another: OpenAnother) -> None:
    """Although none of the tenants has reached its own."""
    await store.queue_set("mail", max_running=5, by=None)
    jobs = [new_job(tenant=f"tenant-{n}") for n in range(150)]
    await store.job_insert_many(jobs)
    samples = await hammer(jobs, [open_another() for _ in range(4)], open_another())
    assert 0 < max(seen.total() for seen in samples) <= 5


async def test_a_limit_is_filled_by_claims_at_the_same_time(store: Store, open_another: OpenAnother) -> None:
    """Those that are in each other's way say so, and asking again fills what is left, exactly."""
    await set_plan(store, "pro", "acme")
    await insert_some(store, 50, tenant="acme")
    stores = [store, *(open_another() for _ in range(3))]
    runs: list[Claimed] = []
    for _ in range(20):
        claims = await asyncio.gather(*(claim(ours, 1) for ours in stores))
        runs += [job for found in claims for job in found.jobs]
        if not any(found.jobs or found.turns[0].busy for found in claims):
            break
    assert len(runs) == 10 == (await store.tenant_get("acme")).running
