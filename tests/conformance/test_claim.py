"""Step 2, hand out: the right jobs, in the right order, each to one worker."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from holdfast.clock import ManualClock
from holdfast.job import Hold, State
from holdfast.store.protocol import Leaving, Store
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import (
    LEASE,
    QUEUE,
    TASK,
    claim,
    claimed_ids,
    complete,
    fail,
    insert,
    insert_some,
    leave,
    new_job,
    start,
    table,
)


@pytest.mark.case("claim-2")
async def test_a_claim_says_on_the_job_who_runs_it_until_when(store: Store, clock: ManualClock) -> None:
    """State, attempt, run number, worker, machine, start, lease and deadline are set."""
    job = await insert(store, timeout_seconds=60.0, tenant="acme")
    await claim(store, worker="worker-9", machine="machine-9")
    found = await store.job_get(job.id)
    now = clock.now()
    assert (found.state, found.attempt, found.run_no) == (State.RUNNING, 1, 1)
    assert (found.locked_by, found.machine_id) == ("worker-9", "machine-9")
    assert (found.started_at, found.last_heartbeat_at, found.updated_at) == (now, now, now)
    assert found.lease_expires_at == now + timedelta(seconds=LEASE)
    assert found.deadline == now + timedelta(seconds=60)


async def test_the_worker_is_told_what_it_needs_to_run_the_job(store: Store, clock: ManualClock) -> None:
    """Ids, arguments, attempt, limits and how long the job has waited."""
    job = await insert(store, args=msgspec.Raw(b'{"a": 1}'), tenant="acme", order_key="o", timeout_seconds=60.0)
    clock.advance(5)
    (run,) = (await claim(store)).jobs
    assert (run.id, run.run_id, run.run_no, run.task, run.queue) == (job.id, job.run_id, 1, TASK, QUEUE)
    assert (run.attempt, run.max_attempts, run.tenant, run.order_key) == (1, 3, "acme", "o")
    assert (run.lease_seconds, run.timeout_seconds, run.waited_seconds) == (LEASE, 60.0, 5.0)
    assert msgspec.json.decode(run.args) == {"a": 1}


async def test_a_job_without_a_timeout_has_no_deadline(store: Store) -> None:
    """Only its lease ends such a run."""
    run = await start(store)
    assert (await store.job_get(run.id)).deadline is None
    assert run.timeout_seconds is None


async def test_a_new_claim_starts_with_a_clean_slate(store: Store) -> None:
    """Stage, progress and error of the attempt before are gone from the job's row."""
    run = await start(store)
    await store.progress_set_if_leased(run.id, run.run_id, 0.5, "packing")
    await leave(store, run, Leaving.RETRY, error_code="boom", error_message="it broke")
    await claim(store)
    found = await store.job_get(run.id)
    assert (found.stage, found.progress, found.error_code, found.error_message) == (None, None, None, None)


# -- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.case("claim-1")
async def test_the_oldest_comes_first(store: Store, clock: ManualClock) -> None:
    """Jobs of equal priority are handed out in the order they came in, also within one call and one moment."""
    ids = await insert_some(store, 3)
    clock.advance(1)
    ids += await insert_some(store, 2)
    assert ids == await claimed_ids(store, 2) + await claimed_ids(store, 10)


async def test_arrival_decides_and_not_the_id(store: Store) -> None:
    """Ids come from the clocks of many hosts; a job with a smaller id that came later stays behind."""
    small, large = sorted([new_job(), new_job()], key=lambda job: job.id)
    await store.job_insert_many([large])
    await store.job_insert_many([small])
    assert [large.id, small.id] == await claimed_ids(store, 2)


async def test_a_higher_priority_goes_first(store: Store, clock: ManualClock) -> None:
    """Priority beats age, and negative ones come last."""
    by_priority = {}
    for priority in (0, -5, 10, 3):
        by_priority[priority] = (await insert(store, priority=priority)).id
        clock.advance(1)
    assert [by_priority[priority] for priority in (10, 3, 0, -5)] == await claimed_ids(store, 10)


async def test_queues_are_served_in_the_order_given(store: Store) -> None:
    """The first queue's least urgent job comes before the second queue's most urgent."""
    second = await insert(store, queue="second", priority=100)
    first = await insert(store, queue="first", priority=-100)
    assert [first.id, second.id] == await claimed_ids(store, 10, queues=["first", "second"])


@pytest.mark.parametrize("limit", [1, 3])
async def test_no_more_than_asked_for(store: Store, limit: int) -> None:
    """A claim stops at its limit, over several queues too."""
    await insert_some(store, 2, queue="first")
    await insert_some(store, 5, queue="second")
    assert len(await claimed_ids(store, limit, queues=["first", "second"])) == limit


# -- what is left alone --------------------------------------------------------------------------------------------------


@pytest.mark.case("claim-3")
async def test_nothing_to_claim_gives_nothing(store: Store) -> None:
    """An empty database answers with no jobs and no due time, again and again."""
    for _ in range(2):
        empty = await claim(store, 10)
        assert (empty.jobs, empty.next_due_seconds) == ([], None)


@pytest.mark.case("claim-5")
async def test_jobs_that_run_or_have_ended_are_not_handed_out(store: Store) -> None:
    """Running, completed, failed and cancelled jobs are skipped."""
    await complete(store, await start(store))
    await fail(store)
    await store.job_cancel((await insert(store)).id, None)
    await start(store)
    assert (await claim(store, 10)).jobs == []


async def test_tasks_that_the_worker_does_not_know_stay_queued(store: Store) -> None:
    """They do not hide those behind them, and a worker that knows them gets them."""
    unknown = await insert_some(store, 20, task="not_mine")
    known = await insert(store)
    assert [known.id] == await claimed_ids(store, 5)
    assert (await claim(store, 5)).jobs == []
    assert unknown == await claimed_ids(store, 20, tasks=["not_mine"])


async def test_other_queues_are_left_alone(store: Store) -> None:
    """A worker of one queue takes nothing from another."""
    other = await insert(store, queue="other")
    assert (await claim(store, 5)).jobs == []
    assert [other.id] == await claimed_ids(store, queues=["other"])


async def test_a_worker_that_found_nothing_finds_what_comes_next(store: Store, open_another: OpenAnother) -> None:
    """An empty claim is no reason to miss a job that another process inserts later."""
    assert (await claim(store)).jobs == []
    job = await insert(open_another())
    assert [job.id] == await claimed_ids(store)


# -- time ----------------------------------------------------------------------------------------------------------------


async def test_a_scheduled_job_is_not_handed_out_before_its_time(store: Store, clock: ManualClock) -> None:
    """Until then a claim says how many seconds are left; once due, one claim is enough."""
    job = await insert(store, delay=10.0)
    early = await claim(store)
    assert (early.jobs, early.next_due_seconds) == ([], 10.0)
    clock.advance(9.5)
    assert (await claim(store)).next_due_seconds == 0.5
    clock.advance(0.5)
    assert [job.id] == await claimed_ids(store)
    assert (await store.job_get(job.id)).hold is None


async def test_the_next_due_time_is_that_of_the_earliest(store: Store) -> None:
    """Of several scheduled jobs the nearest one counts."""
    for delay in (50.0, 20.0, 80.0):
        await insert(store, delay=delay)
    assert (await claim(store)).next_due_seconds == 20.0


async def test_a_due_time_is_told_where_less_was_found_than_asked_for(store: Store) -> None:
    """A worker with a slot left knows when to come back; one that got all it asked for comes back anyway."""
    await insert(store, delay=20.0)
    await insert_some(store, 3)
    full, short = await claim(store, 2), await claim(store, 2)
    assert (len(full.jobs), full.next_due_seconds) == (2, None)
    assert (len(short.jobs), short.next_due_seconds) == (1, 20.0)


async def test_a_job_that_has_fallen_due_queues_behind_those_that_waited_longer(store: Store, clock: ManualClock) -> None:
    """A scheduled job counts from its due time, and its priority counts too."""
    scheduled = await insert(store, delay=10.0)
    urgent = await insert(store, delay=10.0, priority=1)
    clock.advance(5)
    waiting = await insert(store)
    clock.advance(20)
    later = await insert(store)
    one_by_one = [job_id for _ in range(4) for job_id in await claimed_ids(store)]
    assert [urgent.id, waiting.id, scheduled.id, later.id] == one_by_one


async def test_many_jobs_falling_due_together_are_all_handed_out(store: Store, clock: ManualClock) -> None:
    """More than one claim lifts at a time: what is left is due at once, not forgotten."""
    ids = await insert_some(store, 2500, delay=10.0)
    clock.advance(10)
    got: set[str] = set()
    for _ in range(10):
        found = await claim(store, 1000)
        got |= {job.id for job in found.jobs}
        assert found.jobs or found.next_due_seconds is None
    assert set(ids) == got


# -- many at once --------------------------------------------------------------------------------------------------------


@pytest.mark.case("C26", "claim-4")
async def test_claimers_at_the_same_time_never_get_the_same_job(store: Store, open_another: OpenAnother) -> None:
    """Forty claims over three connections' worth of stores hand out 300 jobs, each exactly once."""
    ids = await insert_some(store, 300)
    stores = [store, open_another(), open_another()]
    claims = await asyncio.gather(*(claim(stores[n % 3], 10, worker=f"worker-{n}") for n in range(40)))
    got = [(job.id, f"worker-{n}") for n, answer in enumerate(claims) for job in answer.jobs]
    while rest := await claimed_ids(store, 100, worker="worker-last"):
        got += [(job_id, "worker-last") for job_id in rest]
    assert sorted(ids) == sorted(job_id for job_id, _ in got)
    for job_id, worker in got[::20]:
        assert (await store.job_get(job_id)).locked_by == worker


@pytest.mark.case("claim-6")
async def test_a_row_that_somebody_has_locked_holds_nobody_up(store: Store, open_another: OpenAnother) -> None:
    """PostgreSQL locks rows: the claim skips that one. SQLite locks the file: the claim waits its turn and misses none."""
    locked, free = await insert(store), await insert(store)
    other = open_another()
    if store.name == "postgres":
        async with other.transaction() as tx:
            await tx.fetch(f"SELECT 1 FROM {table(store, 'jobs')} WHERE id = CAST($1 AS uuid) FOR UPDATE", locked.id)
            assert [free.id] == await claimed_ids(store, 10)
        assert [locked.id] == await claimed_ids(store, 10)
    else:
        async with other.transaction() as tx:
            await tx.execute(f"UPDATE {table(store, 'jobs')} SET stage = 'x' WHERE id = $1", locked.id)
            claiming = asyncio.ensure_future(claimed_ids(store, 10))
        assert [locked.id, free.id] == await claiming


async def test_a_claim_is_one_job_per_attempt(store: Store) -> None:
    """Each time a job is handed out its attempt and run number grow, under a run id of its own."""
    run = await start(store)
    seen = [run]
    for _ in range(2):
        await leave(store, seen[-1], Leaving.RETRY)
        seen += (await claim(store)).jobs
    assert [1, 2, 3] == [run.attempt for run in seen] == [run.run_no for run in seen]
    assert len({run.run_id for run in seen}) == 3
    assert (await store.job_get(run.id)).hold is not Hold.TIME
