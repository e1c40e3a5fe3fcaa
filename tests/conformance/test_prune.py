"""Step 6, forget: what is older than its retention goes, in batches, and all that hangs on it."""

from __future__ import annotations

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import JobNotFound
from holdfast.ids import new_job_id
from holdfast.job import State
from holdfast.store.protocol import Leaving, Retention, Store
from tests.conformance.scene import (
    append,
    by_hand,
    claim,
    complete,
    events_of,
    fail,
    insert,
    insert_some,
    leave,
    line,
    log_of,
    start,
)
from tests.conformance.test_workers import a_worker

KEEP = Retention(finished=14, failed=90, events=90, logs=90, workers=1)


async def remaining(store: Store) -> dict[str, int]:
    return {state: count for state, count in (await store.job_counts()).items() if count}


async def test_each_state_has_its_own_time(store: Store, clock: ManualClock) -> None:
    """Completed and cancelled jobs go after theirs, failed ones later, and none a moment early."""
    await complete(store, await start(store))
    await store.job_cancel((await insert(store)).id, None)
    await fail(store)
    clock.advance(days=14)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 0
    clock.advance(1)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 2
    assert await remaining(store) == {"failed": 1}
    clock.advance(days=90 - 14)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 1
    assert await remaining(store) == {}


async def test_the_time_counts_from_the_end_and_not_from_the_beginning(store: Store, clock: ManualClock) -> None:
    """A job that waited for a month is kept as long as any other."""
    job = await insert(store, delay=30 * 86_400.0)
    clock.advance(days=30)
    (run,) = (await claim(store)).jobs
    await complete(store, run)
    clock.advance(days=13)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 0
    assert (await store.job_get(job.id)).state is State.COMPLETED


async def test_active_jobs_are_never_forgotten(store: Store, clock: ManualClock) -> None:
    """Queued, scheduled, retrying and running ones stay, however old."""
    retrying = await start(store)
    await leave(store, retrying, Leaving.RETRY, delay=1e9)
    await insert(store, delay=1e9)
    await start(store)
    await insert(store)
    clock.advance(days=3650)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 0
    assert await remaining(store) == {"queued": 3, "running": 1}


async def test_a_pass_deletes_no_more_than_its_limit_per_table(store: Store, clock: ManualClock) -> None:
    """The rest goes with the next passes."""
    await insert_some(store, 7)
    for run in (await claim(store, 7)).jobs:
        await leave(store, run, Leaving.CANCEL)
    clock.advance(days=100)
    passes = [await store.prune(KEEP, limit=3) for _ in range(4)]
    assert [3, 3, 1, 0] == [gone["jobs"] for gone in passes] == [gone["events"] for gone in passes]


async def test_what_hangs_on_a_job_goes_with_it(store: Store, clock: ManualClock) -> None:
    """Runs, steps and the log lines of every run, also of the older ones; another job's stay."""
    run = await start(store)
    await store.step_save_if_leased(run.id, run.run_id, "s", "f", "1")
    await append(store, run, line(run, 1), line(run, 2))
    await leave(store, run, Leaving.RETRY)
    (again,) = (await claim(store)).jobs
    await append(store, again, line(again, 1))
    await complete(store, again)
    clock.advance(days=10)
    other = await start(store)
    await append(store, other, line(other, 1))
    await store.step_save_if_leased(other.id, other.run_id, "s", "f", "1")
    clock.advance(days=5)
    gone = await store.prune(KEEP, limit=100)
    assert (gone["jobs"], gone["logs"]) == (1, 3)
    with pytest.raises(JobNotFound):
        await store.job_get(run.id)
    left = {
        name: (await by_hand(store, "SELECT count(*) AS n FROM {" + name + "}"))[0]["n"] for name in ("runs", "steps", "logs")
    }
    assert left == {"runs": 0, "steps": 1, "logs": 1}


@pytest.mark.case("D34")
async def test_a_job_with_many_lines_goes_in_small_batches(store: Store, clock: ManualClock) -> None:
    """No pass deletes more than its limit; the job stays until the last line of all its runs is gone, and waits for nobody."""
    run = await start(store)
    await append(store, run, *(line(run, no) for no in range(1, 5)))
    await leave(store, run, Leaving.RETRY)
    (again,) = (await claim(store)).jobs
    await append(store, again, *(line(again, no) for no in range(1, 5)))
    await complete(store, again)
    await complete(store, await start(store))
    clock.advance(days=15)
    passes = [await store.prune(KEEP, limit=3) for _ in range(4)]
    assert [(gone["jobs"], gone["logs"]) for gone in passes] == [(1, 3), (0, 3), (1, 2), (0, 0)]
    assert await by_hand(store, "SELECT * FROM {logs}") == [] == await by_hand(store, "SELECT * FROM {runs}")


async def test_lines_and_jobs_of_the_same_age_share_the_limit(store: Store, clock: ManualClock) -> None:
    """Lines go by their own age and with their job, at most so many in all."""
    run = await start(store)
    await append(store, run, *(line(run, no) for no in range(1, 6)))
    ended = await start(store)
    await append(store, ended, *(line(ended, no) for no in range(1, 6)))
    await complete(store, ended)
    clock.advance(days=91)
    assert [(await store.prune(KEEP, limit=4))["logs"] for _ in range(4)] == [4, 4, 2, 0]


async def test_events_outlive_their_job_until_their_own_time(store: Store, clock: ManualClock) -> None:
    """What happened can still be asked after the job itself is gone."""
    job = await insert(store)
    await store.job_cancel(job.id, "ana")
    clock.advance(days=20)
    gone = await store.prune(KEEP, limit=100)
    assert (gone["jobs"], gone["events"]) == (1, 0)
    assert [event.type for event in await events_of(store, job.id)] == ["job.cancelled"]
    clock.advance(days=71)
    assert (await store.prune(KEEP, limit=100))["events"] == 1
    assert await events_of(store, job.id) == []


@pytest.mark.case("D34")
async def test_old_log_lines_go_although_their_job_stays(store: Store, clock: ManualClock) -> None:
    """A job that runs for months loses its oldest lines only, batch by batch."""
    run = await start(store)
    await append(store, run, *[line(run, no) for no in range(1, 6)])
    clock.advance(days=91)
    await append(store, run, line(run, 6))
    assert [(await store.prune(KEEP, limit=3))["logs"] for _ in range(3)] == [3, 2, 0]
    assert [one.no for one in await log_of(store, run)] == [6]


async def test_workers_that_fell_silent_are_forgotten(store: Store, clock: ManualClock) -> None:
    """A day after their last sign of life; those that live stay."""
    await store.worker_save(a_worker("dead"))
    clock.advance(days=1, seconds=1)
    await store.worker_save(a_worker("alive"))
    assert (await store.prune(KEEP, limit=100))["workers"] == 1
    assert [worker.id for worker in await store.worker_list()] == ["alive"]


async def test_a_forgotten_predecessor_leaves_nobody_waiting(store: Store, clock: ManualClock) -> None:
    """When a failed job that blocks its key is pruned, those behind it go on, at the latest after healing."""
    run = await start(store, order_key="k", order_blocks=True)
    second = await insert(store, order_key="k")
    await leave(store, run, Leaving.FAIL)
    assert (await claim(store)).jobs == []
    clock.advance(days=91)
    assert (await store.prune(KEEP, limit=100))["jobs"] == 1
    await store.order_heal()
    assert [second.id] == [job.id for job in (await claim(store)).jobs]


async def test_nothing_to_forget_is_no_error(store: Store) -> None:
    """An empty database answers zero for every table."""
    assert await store.prune(KEEP, limit=10) == {"jobs": 0, "events": 0, "logs": 0, "workers": 0}
    assert await events_of(store, new_job_id()) == []
