"""What waits for a worker: bounded by what limits let run, and by how much anybody needs to know."""

from __future__ import annotations

from holdfast.clock import ManualClock
from holdfast.store.protocol import Demand, Store
from tests.conformance.scene import QUEUE, TASK, insert, insert_some, set_limit, start

Found = dict[tuple[str, str], Demand]


async def demand_of(store: Store, enough: int = 1_000, cap: int = 100) -> Found:
    """By queue and tenant."""
    return {(row.queue, row.tenant): row for row in await store.job_demand(enough=enough, cap=cap)}


async def test_demand_tells_queue_tenant_and_task_with_age_and_room(store: Store, clock: ManualClock) -> None:
    """A free tenant has room for one however many wait; jobs without a tenant have no limit."""
    ids = await insert_some(store, 10, tenant="acme")
    clock.advance(30)
    await insert(store, task="other", queue="other")
    found = await demand_of(store)
    assert set(found) == {(QUEUE, "acme"), ("other", "")}
    acme, nobody = found[QUEUE, "acme"], found["other", ""]
    assert (acme.task, acme.waiting, acme.room, acme.queue_room) == (TASK, 10, 1, None)
    assert acme.oldest_seconds == 30 and acme.oldest_id in ids
    assert (nobody.task, nobody.waiting, nobody.room, nobody.oldest_seconds) == ("other", 1, None, 0)


async def test_demand_leaves_out_what_limits_and_pauses_do_not_let_run(store: Store) -> None:
    """A tenant at its limit or paused, and a paused queue, ask for nothing."""
    await start(store, tenant="full")
    for tenant in ("full", "paused", "open"):
        await insert(store, tenant=tenant)
    await insert(store, queue="closed")
    await insert(store, queue="narrow")
    await store.tenant_pause("paused", paused=True, by=None)
    await store.queue_pause("closed", paused=True, by=None)
    await store.queue_set("narrow", max_running=3, by=None)
    found = await demand_of(store)
    assert set(found) == {(QUEUE, "open"), ("narrow", "")}
    assert found["narrow", ""].queue_room == 3
    await set_limit(store, 2, "full")
    assert (await demand_of(store))[QUEUE, "full"].room == 1


async def test_demand_counts_one_of_those_that_run_one_after_another(store: Store) -> None:
    """Jobs with the same ordering key never run together."""
    await insert_some(store, 5, order_key="a")
    await insert(store, order_key="b")
    await insert(store)
    assert (await demand_of(store))[QUEUE, ""].waiting == 3


async def test_demand_sees_scheduled_jobs_once_they_are_due(store: Store, clock: ManualClock) -> None:
    """With no worker there, nobody has lifted their hold."""
    await insert(store, delay=60.0, tenant="acme")
    assert await demand_of(store) == {}
    clock.advance(61)
    row = (await demand_of(store))[QUEUE, "acme"]
    assert (row.waiting, row.room, row.oldest_seconds) == (1, 1, 1)


async def test_demand_stops_when_it_has_found_enough(store: Store) -> None:
    """Neither a long backlog nor many tenants make it long."""
    await insert_some(store, 50)
    for number in range(9):
        await insert(store, tenant=f"t{number}")
    found = await demand_of(store, enough=5, cap=3)
    assert [row.waiting for row in found.values()] == [3, 1, 1]
