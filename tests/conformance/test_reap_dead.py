"""Step 5, rescue of runs whose worker is proven dead: at once, by the rules of any rescue, and no others."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import ManualClock
from holdfast.job import State
from holdfast.store.protocol import Backoff, Leaving, Reaped, Store
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import (
    GRACE,
    LEASE,
    append,
    beat,
    claim,
    claimed_ids,
    complete,
    event_types,
    events_of,
    insert,
    insert_some,
    leave,
    line,
    log_of,
    start,
    state_of,
)
from tests.conformance.test_workers import a_worker


async def reap_dead(store: Store, *dead: str, limit: int = 100) -> list[Reaped]:
    return await store.job_reap(backoff=Backoff(), deadline_grace=GRACE, limit=limit, dead=dead)


@pytest.mark.case("recovery-9")
async def test_a_run_of_a_dead_worker_is_queued_again_at_once_and_says_why(store: Store) -> None:
    """Run, job, event and log name the death, and the lease that is not over does not matter."""
    run = await start(store, backoff=[60.0])
    (reaped,) = await reap_dead(store, "worker-1")
    assert (reaped.id, reaped.state, reaped.reason, reaped.attempt) == (run.id, State.QUEUED, "worker_died", 1)
    found = await store.job_get(run.id)
    assert (found.error_code, found.error_message, found.run_id == run.run_id) == ("worker_died", "its worker died", False)
    (lost,) = await store.run_list(run.id)
    assert (lost.outcome, lost.error_code, lost.error_message) == ("lost", "worker_died", "its worker died")
    (event,) = await events_of(store, run.id)
    assert (event.type, event.data["reason"]) == ("reaper:requeued", "worker_died")
    assert [one.message for one in await log_of(store, run)] == [
        "Send receipt attempt 1 failed (worker died) - automatically retrying..."
    ]


@pytest.mark.case("recovery-10")
async def test_runs_of_other_workers_are_left_alone(store: Store) -> None:
    """A death concerns the jobs of that worker only."""
    await insert_some(store, 2)
    dead, alive = await claimed_ids(store), await claimed_ids(store, worker="worker-2")
    assert [job.id for job in await reap_dead(store, "worker-1", "worker-3")] == dead
    assert [await state_of(store, job_id) for job_id in alive] == [State.RUNNING]


@pytest.mark.case("recovery-9")
async def test_the_first_run_lost_by_a_death_costs_no_wait(store: Store) -> None:
    """Another worker can take the job at once, whatever its own waits are."""
    job = await insert(store, backoff=[60.0])
    await claim(store)
    await reap_dead(store, "worker-1")
    assert [job.id] == await claimed_ids(store, worker="worker-2")


@pytest.mark.case("L6")
async def test_a_job_that_kills_its_workers_waits_and_is_given_up(store: Store, clock: ManualClock) -> None:
    """From the second lost run on it backs off, and the last attempt ends it."""
    job = await insert(store, max_attempts=3, backoff=[60.0])
    assert [job.id] == await claimed_ids(store, worker="worker-1")
    await reap_dead(store, "worker-1")
    assert [job.id] == await claimed_ids(store, worker="worker-2")
    await reap_dead(store, "worker-2")
    assert await claimed_ids(store, worker="worker-3") == []
    clock.advance(60)
    assert [job.id] == await claimed_ids(store, worker="worker-3")
    await reap_dead(store, "worker-3")
    found = await store.job_get(job.id)
    assert (found.state, found.error_code) == (State.FAILED, "worker_died")
    assert found.error_message == "Send receipt failed after 3 attempts (machine crash or timeout)"


async def test_a_run_of_a_dead_worker_that_was_to_be_cancelled_is_cancelled(store: Store) -> None:
    """It is not revived, as with any rescue."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    (reaped,) = await reap_dead(store, "worker-1")
    assert State.CANCELLED is reaped.state is await state_of(store, run.id)


@pytest.mark.case("L14", "recovery-9")
async def test_passes_at_once_rescue_each_job_of_a_dead_worker_once(store: Store, open_another: OpenAnother) -> None:
    """Every job is in one report, with one event."""
    await insert_some(store, 40)
    runs = (await claim(store, 40)).jobs
    stores = [store, open_another()]
    reports = await asyncio.gather(*(reap_dead(stores[n % 2], "worker-1", limit=15) for n in range(6)))
    reports.append(await reap_dead(store, "worker-1"))
    assert sorted(job.id for report in reports for job in report) == sorted(run.id for run in runs)
    for run in runs[::5]:
        assert await event_types(store, run.id) == ["reaper:requeued"]


@pytest.mark.case("recovery-10")
async def test_a_worker_that_was_taken_for_dead_by_mistake_can_write_nothing(store: Store) -> None:
    """Its outcome, heartbeat, log lines, progress and steps are refused: the job belongs to the next run."""
    run = await start(store)
    await reap_dead(store, "worker-1")
    (second,) = (await claim(store, worker="worker-2")).jobs
    assert second.id == run.id
    assert not await beat(store, run)
    assert not await append(store, run, line(run, 5))
    assert not await store.progress_set_if_leased(run.id, run.run_id, 0.9, "late")
    assert not await store.step_save_if_leased(run.id, run.run_id, "pay", "f", "1")
    assert await leave(store, run, Leaving.FAIL) is None
    assert not await complete(store, run)
    assert await complete(store, second)


async def test_a_dead_worker_is_forgotten_once_it_holds_no_job(store: Store) -> None:
    """Not by the pass that rescues: a claim that was on its way when the worker died is found by the next one."""
    await store.worker_save(a_worker("worker-1"))
    await store.worker_save(a_worker("worker-2"))
    await insert_some(store, 2)
    await claim(store)
    await reap_dead(store, "worker-1")
    assert len(await store.worker_list()) == 2
    await claim(store, worker="worker-1")
    assert len(await reap_dead(store, "worker-1")) == 1
    assert await reap_dead(store, "worker-1") == []
    assert [worker.id for worker in await store.worker_list()] == ["worker-2"]


async def test_with_a_dead_worker_expired_leases_are_rescued_in_the_same_pass(store: Store, clock: ManualClock) -> None:
    """Each job with the reason that is its own."""
    late = await start(store)
    clock.advance(LEASE + 1)
    await insert(store)
    (dead,) = await claimed_ids(store, worker="worker-2")
    assert {job.id: job.reason for job in await reap_dead(store, "worker-2")} == {late.id: "lease_expired", dead: "worker_died"}
