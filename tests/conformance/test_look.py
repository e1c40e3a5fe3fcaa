"""Looking: one job, lists, counts, and what nobody serves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import JobNotFound
from holdfast.job import State
from holdfast.store.protocol import JobFilter, Leaving, Store
from tests.conformance.scene import QUEUE, TASK, claim, complete, events_of, fail, insert, insert_some, leave, new_job, start
from tests.conformance.test_workers import a_worker


async def listed(store: Store, *, cursor: str | None = None, limit: int = 100, **where: Any) -> list[str]:
    return [job.id for job in await store.job_list(JobFilter(**where), cursor=cursor, limit=limit)]


@pytest.mark.parametrize("job_id", ["01890000-0000-7000-8000-000000000000", "not-an-id", ""])
async def test_a_job_that_is_not_there_is_a_clear_error(store: Store, job_id: str) -> None:
    """Its runs are not to be had either; it has no events."""
    with pytest.raises(JobNotFound, match=f"There is no job {job_id}"):
        await store.job_get(job_id)
    with pytest.raises(JobNotFound):
        await store.run_list(job_id)
    assert await events_of(store, job_id) == []


# -- lists -----------------------------------------------------------------------------------------------------------------


async def test_a_list_is_newest_first(store: Store) -> None:
    """And holds whole jobs, as one would get them one by one."""
    ids = await insert_some(store, 3, tenant="acme", tags=["a"])
    jobs = await store.job_list(JobFilter(), cursor=None, limit=100)
    assert ids[::-1] == [job.id for job in jobs]
    assert jobs[0] == await store.job_get(ids[-1])


async def test_pages_follow_each_other_without_gap_or_repetition(store: Store) -> None:
    """The cursor is the last id seen; jobs that come in meanwhile do not shift the pages."""
    ids = await insert_some(store, 7)
    pages = [await listed(store, limit=3)]
    await insert(store)
    while pages[-1]:
        pages.append(await listed(store, cursor=pages[-1][-1], limit=3))
    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert ids[::-1] == [job_id for page in pages for job_id in page]


@pytest.mark.parametrize("tenant", [None, "acme"])
async def test_a_search_may_end_at_an_id(store: Store, tenant: str | None) -> None:
    """That one and newer ones are looked at, of all tenants or of one, whatever else is asked for."""
    ids = await insert_some(store, 5, tenant="acme", tags=["a"])
    assert ids[:1:-1] == await listed(store, since=ids[2], tenant=tenant)
    assert ids[:1:-1] == await listed(store, since=ids[2], tenant=tenant, state=State.QUEUED, tag="a")
    assert await store.job_count(JobFilter(since=ids[2], tenant=tenant), 100) == 3
    assert await listed(store, since=ids[2], cursor=ids[3], tenant=tenant) == [ids[2]]


@pytest.mark.parametrize("field", ["queue", "task", "tenant", "project"])
async def test_a_list_may_be_of_one_kind_only(store: Store, field: str) -> None:
    """By queue, task, tenant or project: what matches exactly, and nothing else."""
    wanted = await insert_some(store, 2, **{field: "wanted"})
    await store.job_insert_many([new_job(**{field: "unwanted"}), new_job()])
    assert wanted[::-1] == await listed(store, **dict[str, Any]({field: "wanted"}))
    assert await listed(store, **dict[str, Any]({field: "want"})) == []


async def test_a_list_may_be_of_one_tag(store: Store) -> None:
    """A job has several; any of them finds it, a part of one does not."""
    job = await insert(store, tags=["red", "blue"])
    await insert(store, tags=["green"])
    await insert(store)
    assert [job.id] == await listed(store, tag="blue") == await listed(store, tag="red")
    assert await listed(store, tag="bl") == []


async def test_a_list_may_be_of_some_time(store: Store, clock: ManualClock) -> None:
    """From `after` on, and before `before`."""
    ids, noon = [], clock.now() + timedelta(seconds=10)
    for _ in range(3):
        ids.append((await insert(store)).id)
        clock.advance(10)
    assert [ids[2], ids[1]] == await listed(store, after=noon)
    assert [ids[0]] == await listed(store, before=noon)
    assert [ids[1]] == await listed(store, after=noon, before=noon + timedelta(seconds=10))


async def one_of_each_state(store: Store) -> dict[State, str]:
    completed, failed, cancelled = await start(store), await fail(store), await insert(store)
    await complete(store, completed)
    await store.job_cancel(cancelled.id, None)
    running, queued = await start(store), await insert(store)
    return {
        State.COMPLETED: completed.id,
        State.FAILED: failed.id,
        State.CANCELLED: cancelled.id,
        State.RUNNING: running.id,
        State.QUEUED: queued.id,
    }


@pytest.mark.parametrize("state", list(State))
async def test_a_list_may_be_of_one_state(store: Store, state: State) -> None:
    """Alone, after a cursor, and together with other conditions."""
    by_state = await one_of_each_state(store)
    job_id = by_state[state]
    assert [job_id] == await listed(store, state=state) == await listed(store, state=state, queue=QUEUE, task=TASK)
    assert await listed(store, state=state, cursor=job_id) == []
    assert await listed(store, state=state, queue="other") == []


async def test_a_list_of_queued_jobs_holds_those_that_wait_too(store: Store) -> None:
    """Scheduled ones, and those that wait for their turn."""
    await start(store, order_key="k")
    waiting = await insert(store, order_key="k")
    assert (await claim(store)).jobs == []
    scheduled = await insert(store, delay=60.0)
    assert [scheduled.id, waiting.id] == await listed(store, state=State.QUEUED)
    assert (await store.job_counts())["queued"] == 2


async def test_all_conditions_of_a_list_must_hold(store: Store) -> None:
    """They narrow each other down."""
    both = await insert(store, tenant="acme", project="shop", tags=["x"])
    await insert(store, tenant="acme")
    await insert(store, project="shop", tags=["x"])
    assert [both.id] == await listed(store, tenant="acme", project="shop", tag="x", state=State.QUEUED)


# -- counts ----------------------------------------------------------------------------------------------------------------


async def test_every_state_is_counted(store: Store) -> None:
    """Also those of which there are none."""
    assert await store.job_counts() == dict.fromkeys(["queued", "running", "completed", "failed", "cancelled"], 0)
    await one_of_each_state(store)
    await insert(store, delay=60.0)
    assert await store.job_counts() == {"queued": 2, "running": 1, "completed": 1, "failed": 1, "cancelled": 1}


async def test_counting_stops_at_the_cap(store: Store) -> None:
    """State by state, also where the queued ones have different reasons to wait."""
    await insert_some(store, 6)
    await insert_some(store, 6, delay=60.0)
    await claim(store, 2)
    counts = await store.job_counts(cap=5)
    assert (counts["queued"], counts["running"]) == (5, 2)


# -- unserved --------------------------------------------------------------------------------------------------------------


@pytest.mark.case("L26")
async def test_jobs_that_no_live_worker_knows_are_told_after_a_while(store: Store, clock: ManualClock) -> None:
    """By queue and task with their number, most first, and not before they have waited long enough."""
    await insert_some(store, 2, task="rare")
    await insert_some(store, 3, queue="lonely")
    await insert(store)
    await store.worker_save(a_worker("w", queues=[QUEUE], tasks=[TASK]))
    assert await store.job_unserved(30.0, 10) == []
    clock.advance(31)
    assert await store.job_unserved(30.0, 10) == [("lonely", TASK, 3), (QUEUE, "rare", 2)]
    assert await store.job_unserved(30.0, 1) == [("lonely", TASK, 3)]


@pytest.mark.parametrize("gone", ["silent", "draining", "never there"])
async def test_a_worker_that_does_not_claim_serves_nobody(store: Store, clock: ManualClock, gone: str) -> None:
    """One that fell silent a minute ago or is on its way out does not count."""
    await insert(store)
    if gone == "silent":
        await store.worker_save(a_worker("w"))
    clock.advance(61)
    if gone == "draining":
        await store.worker_save(a_worker("w", draining=True))
    assert await store.job_unserved(30.0, 10) == [(QUEUE, TASK, 1)]


async def test_scheduled_jobs_count_as_unserved_once_they_are_overdue(store: Store, clock: ManualClock) -> None:
    """Nobody was there to notice that their time had come; before it they miss nobody."""
    await insert(store, delay=100.0)
    clock.advance(120)
    assert await store.job_unserved(30.0, 10) == []
    clock.advance(11)
    assert await store.job_unserved(30.0, 10) == [(QUEUE, TASK, 1)]


async def test_jobs_that_run_or_wait_for_their_turn_are_not_unserved(store: Store, clock: ManualClock) -> None:
    """Somebody is busy with them, or with the one before them."""
    await start(store, order_key="k")
    await insert(store, order_key="k")
    assert (await claim(store)).jobs == []
    clock.advance(1000)
    assert await store.job_unserved(30.0, 10) == []


# -- runs and events -------------------------------------------------------------------------------------------------------


async def test_a_job_that_was_never_claimed_has_no_runs(store: Store) -> None:
    """Whether it waits or was cancelled."""
    job = await insert(store)
    assert await store.run_list(job.id) == []
    await store.job_cancel(job.id, None)
    assert await store.run_list(job.id) == []


async def test_runs_are_newest_first_and_events_oldest_first(store: Store, clock: ManualClock) -> None:
    """Each in its own order, numbered as they happened."""
    run = await start(store)
    for how in (Leaving.RETRY, Leaving.SNOOZE, Leaving.FAIL):
        await leave(store, run, how)
        clock.advance(1)
        run = next(iter((await claim(store)).jobs), run)
    assert [(r.run_no, r.outcome) for r in await store.run_list(run.id)] == [(3, "failed"), (2, "snoozed"), (1, "failed")]
    events = await events_of(store, run.id)
    assert [event.type for event in events] == ["job.retrying", "job.snoozed", "job.failed"]
    assert sorted(event.id for event in events) == [event.id for event in events]
