"""Statistics: what waits and runs in each queue, and the counters of all processes."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import ManualClock
from holdfast.job import State
from holdfast.store.protocol import JobFilter, QueueLoad, Store, Tally
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import (
    GRACE,
    LEASE,
    QUEUE,
    TASK,
    by_hand,
    claim,
    complete,
    fail,
    insert,
    insert_some,
    set_limit,
    start,
    table,
)


async def load(store: Store, queue: str = QUEUE, *, tenant: str | None = None, cap: int = 10_000) -> QueueLoad:
    found = {one.queue: one for one in await store.queue_stats(tenant=tenant, deadline_grace=GRACE, cap=cap)}
    return found.get(queue, QueueLoad(queue=queue))


# -- queues ----------------------------------------------------------------------------------------------------------------


async def test_an_empty_database_has_no_queues(store: Store) -> None:
    """Nor do jobs that have ended make one."""
    await complete(store, await start(store))
    assert await store.queue_stats() == []


async def test_each_queue_is_counted_by_what_its_jobs_wait_for(store: Store) -> None:
    """Waiting, scheduled, behind another one, running; by queue name."""
    await start(store, order_key="k")
    await insert(store, order_key="k")
    assert (await claim(store)).jobs == []
    await insert_some(store, 2)
    await insert_some(store, 3, delay=60.0)
    await insert(store, queue="a")
    a, mail = await store.queue_stats()
    assert (a.queue, a.waiting, a.running) == ("a", 1, 0)
    assert (mail.queue, mail.waiting, mail.scheduled, mail.ordered, mail.running) == (QUEUE, 2, 3, 1, 1)


async def test_the_oldest_wait_is_told(store: Store, clock: ManualClock) -> None:
    """Whatever the tenant and priority; nobody waits in a queue that is only scheduled or running."""
    await insert(store, tenant="zoe", priority=-5)
    clock.advance(40)
    await insert(store, tenant="abe", priority=5)
    await insert(store, queue="later", delay=100.0)
    assert (await load(store)).oldest_wait_seconds == pytest.approx(40)
    assert (await load(store, "later")).oldest_wait_seconds is None


async def test_a_scheduled_job_whose_time_has_come_counts_as_waiting(store: Store, clock: ManualClock) -> None:
    """Also where no worker is there to notice."""
    await insert(store, delay=10.0)
    clock.advance(25)
    found = await load(store)
    assert (found.waiting, found.scheduled, found.oldest_wait_seconds) == (1, 0, pytest.approx(15))


async def test_counting_a_queue_stops_at_the_cap(store: Store) -> None:
    """For every kind of wait."""
    await insert_some(store, 7)
    await insert_some(store, 7, delay=60.0)
    found = await load(store, cap=5)
    assert (found.waiting, found.scheduled) == (5, 5)


async def test_a_run_without_a_valid_lease_is_stuck(store: Store, clock: ManualClock) -> None:
    """Not before the lease is over."""
    await start(store)
    clock.advance(LEASE - 1)
    assert (await load(store)).stuck == 0
    clock.advance(2)
    assert (await load(store)).stuck == 1


async def test_a_run_past_its_deadline_is_stuck_after_the_grace(store: Store, clock: ManualClock) -> None:
    """The worker has that long to end it by itself."""
    await start(store, timeout_seconds=10.0)
    clock.advance(10 + GRACE - 1)
    assert (await load(store)).stuck == 0
    clock.advance(2)
    assert (await load(store)).stuck == 1


async def test_a_run_longer_than_expected_is_slow(store: Store, clock: ManualClock) -> None:
    """Five minutes where nothing is expected."""
    await start(store, expected_seconds=10.0)
    await start(store, queue="other")
    clock.advance(11)
    assert ((await load(store)).slow, (await load(store, "other")).slow) == (1, 0)
    clock.advance(300)
    assert (await load(store, "other")).slow == 1


async def test_a_tenant_sees_its_own_jobs_only(store: Store) -> None:
    """In every number."""
    await set_limit(store, 5, "abe", "zoe")
    for tenant in ("abe", "zoe"):
        await start(store, tenant=tenant, order_key="k")
        await insert(store, tenant=tenant, order_key="k")
        assert (await claim(store)).jobs == []
        await insert(store, tenant=tenant, delay=60.0)
    for tenant in ("abe", "zoe"):
        await insert(store, tenant=tenant)
    await insert(store)
    await start(store, queue="other", tenant="zoe2")
    assert await store.queue_stats(tenant="nobody") == []
    for tenant in ("abe", "zoe"):
        (found,) = await store.queue_stats(tenant=tenant)
        assert (found.waiting, found.scheduled, found.ordered, found.running) == (1, 1, 1, 1)


async def test_the_states_of_one_tenants_jobs_are_counted(store: Store) -> None:
    """Each to the cap at the most; those of others are not among them."""
    await complete(store, await start(store, tenant="abe"))
    await fail(store, tenant="abe")
    await fail(store, tenant="zoe")
    await insert_some(store, 6, tenant="abe")
    await insert_some(store, 2, tenant="zoe")
    assert (await store.job_counts(cap=5, tenant="abe"))["queued"] == 5
    counts = await store.job_counts(tenant="abe")
    assert counts == {"queued": 6, "running": 0, "completed": 1, "failed": 1, "cancelled": 0}


async def test_cancelled_jobs_are_counted(store: Store) -> None:
    """Overall and by tenant."""
    for tenant in ("abe", "zoe"):
        await store.job_cancel((await insert(store, tenant=tenant)).id, None)
    assert (await store.job_counts())["cancelled"] == 2
    assert (await store.job_counts(tenant="abe"))["cancelled"] == 1


async def test_a_claim_hands_out_the_trace_the_job_was_enqueued_under(store: Store) -> None:
    """And nothing where there was none."""
    traced = await start(store, trace_context='{"traceparent": "00-1-2-01"}')
    assert (await store.job_get(traced.id)).trace_context == traced.trace_context == '{"traceparent": "00-1-2-01"}'
    assert (await start(store, queue="other", task=TASK)).trace_context is None


# -- counters --------------------------------------------------------------------------------------------------------------


async def test_what_is_added_is_in_the_totals(store: Store) -> None:
    """Summed by name, queue and label."""
    await store.tally_add([Tally("run", QUEUE, "|1.0", 2), Tally("run", QUEUE, "|sum", 0.5), Tally("failed", QUEUE, "", 1)])
    await store.tally_add([Tally("run", QUEUE, "|1.0", 3), Tally("run", QUEUE, "|sum", 0.25)])
    assert await store.tally_totals() == [
        Tally("failed", QUEUE, "", 1),
        Tally("run", QUEUE, "|1.0", 5),
        Tally("run", QUEUE, "|sum", 0.75),
    ]


async def test_recent_counters_forget_and_totals_do_not(store: Store, clock: ManualClock) -> None:
    """Minute by minute, with the seconds that they cover."""
    clock.advance(-clock.now().second)
    await store.tally_add([Tally("completed", QUEUE, "", 4)])
    clock.advance(60 * 5 + 30)
    await store.tally_add([Tally("completed", QUEUE, "", 2)])
    assert await store.tally_recent(5) == (330.0, [Tally("completed", QUEUE, "", 6)])
    clock.advance(60)
    assert await store.tally_recent(5) == (330.0, [Tally("completed", QUEUE, "", 2)])
    clock.advance(60 * 61)
    assert (await store.tally_recent(60))[1] == []
    assert await store.tally_totals() == [Tally("completed", QUEUE, "", 6)]


async def test_minutes_that_nobody_can_ask_for_are_removed(store: Store, clock: ManualClock) -> None:
    """By whoever adds next: the table stays small."""
    await store.tally_add([Tally("completed", QUEUE, "", 1)])
    clock.advance(60 * 62)
    await store.tally_add([Tally("completed", QUEUE, "", 1)])
    await store.tally_add([Tally("completed", QUEUE, "", 1)])
    (found,) = await by_hand(store, f"SELECT count(*) AS n FROM {table(store, 'tallies')} WHERE minute >= 0")
    assert found["n"] == 2


async def test_hours_are_kept_for_a_week_of_all_queues_together(store: Store, clock: ManualClock) -> None:
    """So that charts of a day and of a week read a bounded number of rows, whatever the number of queues."""
    hour = int(clock.now().timestamp() // 3600)
    clock.advance(hour * 3600 - clock.now().timestamp())
    await store.tally_add([Tally("completed", "a", "", 1), Tally("completed", "b", "", 2), Tally("claimed", "a", "", 3)])
    clock.advance(3600 * 24 * 7)
    await store.tally_add([Tally("completed", "a", "", 5)])
    kept = [(row["hour"] - hour, row["name"], row["n"]) for row in await store.shared("tally_hours", -hour)]
    assert sorted(kept) == [(0, "completed", 3), (168, "completed", 5)]
    clock.advance(3600 * 3)
    await store.tally_add([Tally("completed", "a", "", 1)])
    assert min(row["hour"] - hour for row in await store.shared("tally_hours", -1)) == 168
    assert sum(tally.n for tally in await store.tally_totals() if tally.name == "completed") == 9


async def test_many_processes_add_at_once(open_another: OpenAnother) -> None:
    """Nothing is lost, and nobody waits for anybody in a circle."""
    stores = [open_another() for _ in range(4)]
    tallies = [Tally("completed", f"q{no}", "", 1) for no in range(20)]
    await asyncio.gather(*(store.tally_add(tallies) for store in stores for _ in range(5)))
    assert {20.0} == {tally.n for tally in await stores[0].tally_totals()}


async def test_what_runs_is_counted_whole_where_few_rows_are_looked_at(store: Store, clock: ManualClock) -> None:
    """How many run is told by the index; how many of them are stuck is told of those that were looked at."""
    for _ in range(3):
        await start(store)
    clock.advance(LEASE + 1)
    (found,) = await store.queue_stats(look_at=2)
    assert (found.running, found.stuck) == (3, 2)


async def test_unserved_jobs_of_every_queue_are_found_by_a_quick_look(store: Store, clock: ManualClock) -> None:
    """A long queue does not hide the others: of each at least a hundred are looked at."""
    await insert_some(store, 130, queue="a")
    await insert(store, queue="b")
    clock.advance(60)
    found = {queue: n for queue, _task, n in await store.job_unserved(30.0, 10, look_at=1)}
    assert found == {"a": 100, "b": 1}


@pytest.mark.parametrize("tenant", [None, "abe"])
async def test_what_is_queued_is_counted_whatever_it_waits_for(store: Store, tenant: str | None) -> None:
    """A worker, its time, or its turn; to the cap at the most."""
    await set_limit(store, 5, "abe")
    await start(store, tenant="abe", order_key="k")
    await insert(store, tenant="abe", order_key="k")
    assert (await claim(store)).jobs == []
    await insert(store, tenant="abe", delay=60.0)
    await insert(store, tenant="abe")
    where = JobFilter(state=State.QUEUED, tenant=tenant)
    assert [await store.job_count(where, cap) for cap in (2, 100)] == [2, 3]
    assert (await store.job_counts(tenant=tenant))["queued"] == 3
