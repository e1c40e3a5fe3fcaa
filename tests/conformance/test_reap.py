"""Step 5, rescue: runs whose worker died or hangs, each handled once, and nobody else touched."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.clock import ManualClock
from holdfast.job import Hold, State
from holdfast.store.protocol import Backoff, Store
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
    fail,
    insert,
    insert_some,
    line,
    log_of,
    reap,
    start,
    state_of,
)


async def start_and_lose(store: Store, clock: ManualClock, **fields: object) -> str:
    """The id of a job whose lease has just run out."""
    run = await start(store, **fields)
    clock.advance(LEASE + 1)
    return run.id


@pytest.mark.case("recovery-1")
async def test_a_run_whose_lease_ran_out_is_queued_again(store: Store, clock: ManualClock) -> None:
    """Under a new run id, with the attempt counted and nobody's name on it."""
    run = await start(store, backoff=[60.0], tenant="acme")
    await store.progress_set_if_leased(run.id, run.run_id, 0.5, "packing")
    clock.advance(LEASE + 1)
    (reaped,) = await reap(store)
    assert (reaped.id, reaped.queue, reaped.task, reaped.tenant) == (run.id, run.queue, run.task, "acme")
    assert (reaped.state, reaped.reason, reaped.attempt) == (State.QUEUED, "lease_expired", 1)
    assert (reaped.locked_by, reaped.stage) == ("worker-1", "packing")
    found = await store.job_get(run.id)
    assert (found.state, found.attempt, found.hold) == (State.QUEUED, 1, Hold.TIME)
    assert found.run_id != run.run_id
    assert (found.error_code, found.error_message) == ("lease_expired", "the worker stopped answering")
    assert (found.locked_by, found.lease_expires_at, found.deadline) == (None, None, None)


async def test_the_lost_run_goes_into_the_history(store: Store, clock: ManualClock) -> None:
    """With its worker, its times and why it was lost."""
    began = clock.now()
    job_id = await start_and_lose(store, clock)
    await reap(store)
    (run,) = await store.run_list(job_id)
    assert (run.run_no, run.attempt, run.outcome, run.worker) == (1, 1, "lost", "worker-1")
    assert (run.error_code, run.error_message) == ("lease_expired", "the worker stopped answering")
    assert (run.started_at, run.finished_at) == (began, clock.now())


@pytest.mark.case("L13", "recovery-2")
async def test_a_run_that_beats_is_left_alone(store: Store, clock: ManualClock) -> None:
    """However long it runs: what counts is the lease, to the very second."""
    run = await start(store)
    for _ in range(5):
        clock.advance(LEASE - 1)
        assert await beat(store, run)
    clock.advance(LEASE)
    assert await reap(store) == []
    assert await state_of(store, run.id) is State.RUNNING
    clock.advance(1)
    assert len(await reap(store)) == 1


async def test_a_run_far_past_its_deadline_is_ended_although_it_beats(store: Store, clock: ManualClock) -> None:
    """Its worker has the grace to end it first; then the reaper does."""
    run = await start(store, timeout_seconds=100.0)
    clock.advance(100 + GRACE)
    await beat(store, run)
    assert await reap(store) == []
    clock.advance(1)
    await beat(store, run)
    (reaped,) = await reap(store)
    assert (reaped.state, reaped.reason) == (State.QUEUED, "deadline_exceeded")
    assert (await store.job_get(run.id)).error_code == "deadline_exceeded"


@pytest.mark.case("recovery-4")
async def test_jobs_that_do_not_run_are_left_alone(store: Store, clock: ManualClock) -> None:
    """Queued, scheduled, completed, failed and cancelled jobs stay as they are, however old."""
    await complete(store, await start(store))
    await fail(store)
    await store.job_cancel((await insert(store)).id, None)
    await insert(store)
    await insert(store, delay=60.0)
    before = await store.job_counts()
    clock.advance(days=30)
    assert await reap(store) == []
    assert before == await store.job_counts()


# -- the next attempt ------------------------------------------------------------------------------------------------------


async def test_the_tasks_own_waits_are_kept(store: Store, clock: ManualClock) -> None:
    """The list is walked attempt by attempt; its last entry serves for all further ones."""
    job = await insert(store, max_attempts=10, backoff=[60.0, 300.0, 900.0])
    for wait in (60, 300, 900, 900):
        assert [job.id] == await claimed_ids(store)
        clock.advance(LEASE + 1)
        await reap(store)
        assert (await store.job_get(job.id)).run_at == clock.now() + timedelta(seconds=wait)
        clock.advance(wait)


async def test_without_a_list_the_wait_is_drawn_from_a_growing_range(store: Store, clock: ManualClock) -> None:
    """Full jitter: between nothing and base · 2^(attempt - 1), never above the most, and not always the same."""
    backoff = Backoff(base=8.0, most=20.0)
    await insert_some(store, 60, max_attempts=10)
    for most in (8.0, 16.0, 20.0):
        runs = (await claim(store, 100)).jobs
        assert len(runs) == 60
        clock.advance(LEASE + 1)
        await reap(store, backoff=backoff)
        jobs = [await store.job_get(run.id) for run in runs]
        waits = [(job.run_at - clock.now()).total_seconds() for job in jobs if job.run_at]
        assert 0 <= min(waits) < most / 4
        assert most * 3 / 4 < max(waits) <= most
        clock.advance(most)


async def test_an_empty_list_of_waits_is_no_list(store: Store, clock: ManualClock) -> None:
    """Such a job is rescued like any other."""
    job_id = await start_and_lose(store, clock, backoff=[])
    assert [job_id] == [job.id for job in await reap(store)]


async def test_a_wait_of_nothing_makes_it_claimable_at_once(store: Store, clock: ManualClock) -> None:
    """A backoff of zero seconds holds nothing."""
    job_id = await start_and_lose(store, clock, backoff=[0.0])
    await reap(store)
    assert [job_id] == await claimed_ids(store)


# -- giving up -------------------------------------------------------------------------------------------------------------


@pytest.mark.case("recovery-3")
@pytest.mark.parametrize(("noun", "named"), [(None, "Send receipt"), ("Extraction", "Extraction")])
async def test_without_attempts_left_it_fails_and_says_so(
    store: Store, clock: ManualClock, noun: str | None, named: str
) -> None:
    """The sentence names the number of attempts in the task's own noun, or in its name."""
    job = await insert(store, max_attempts=2, backoff=[0.0], noun=noun)
    for _ in range(2):
        assert [job.id] == await claimed_ids(store)
        clock.advance(LEASE + 1)
        (reaped,) = await reap(store)
    found = await store.job_get(job.id)
    assert State.FAILED is reaped.state is found.state
    assert found.error_message == f"{named} failed after 2 attempts (machine crash or timeout)"
    assert (found.error_code, found.finished_at, found.attempt) == ("lease_expired", clock.now(), 2)
    assert [(run.run_no, run.outcome) for run in await store.run_list(job.id)] == [(2, "failed"), (1, "lost")]


@pytest.mark.case("L27")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_job_that_somebody_cancelled_is_never_revived(store: Store, clock: ManualClock, attempts: int) -> None:
    """Attempts left or not: it is cancelled, and shows no error."""
    run = await start(store, max_attempts=attempts)
    await store.job_cancel(run.id, "ana")
    clock.advance(LEASE + 1)
    (reaped,) = await reap(store)
    found = await store.job_get(run.id)
    assert State.CANCELLED is reaped.state is found.state
    assert (found.error_code, found.error_message, found.finished_at) == (None, None, clock.now())


# -- what it leaves behind -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "cancelled", "event", "level", "message"),
    [
        (
            3,
            False,
            "reaper:requeued",
            "warning",
            "Send receipt attempt 1 failed (machine unresponsive) - automatically retrying...",
        ),
        (
            1,
            False,
            "reaper:failed(timeout)",
            "error",
            "Send receipt failed after 1 attempts - machine crashed or timed out. Retry the job once the cause is fixed.",
        ),
        (3, True, "reaper:cancelled", "warning", "Cancelled by ana; its worker did not answer"),
    ],
    ids=["requeued", "failed", "cancelled"],
)
@pytest.mark.case("recovery-7")
async def test_each_rescue_leaves_one_event_and_one_line(
    store: Store, clock: ManualClock, attempts: int, cancelled: bool, event: str, level: str, message: str
) -> None:
    """The line is in the lost run's own log, numbered after the lines that are there."""
    run = await start(store, max_attempts=attempts, tenant="acme")
    await append(store, run, line(run, 1), line(run, 2))
    if cancelled:
        await store.job_cancel(run.id, "ana")
    clock.advance(LEASE + 1)
    await reap(store)
    written = (await events_of(store, run.id))[-1]
    assert (written.type, written.actor, written.tenant, written.at) == (event, "reaper", "acme", clock.now())
    assert written.data == {"reason": "lease_expired", "locked_by": "worker-1", "attempt": 1, "run_no": 1}
    *_, last = await log_of(store, run)
    assert (last.no, last.level, last.message, last.created_at) == (3, level, message, clock.now())


async def test_the_line_of_a_silent_run_is_its_first(store: Store, clock: ManualClock) -> None:
    """A run that wrote nothing gets line one."""
    run = await start(store)
    clock.advance(LEASE + 1)
    await reap(store)
    assert [one.no for one in await log_of(store, run)] == [1]


# -- many at once ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("L14", "recovery-5")
async def test_reapers_at_once_handle_each_job_once(store: Store, clock: ManualClock, open_another: OpenAnother) -> None:
    """Six passes over sixty lost runs: every job in one report, with one event and one line."""
    await insert_some(store, 60, backoff=[0.0])
    runs = (await claim(store, 100)).jobs
    clock.advance(LEASE + 1)
    stores = [store, open_another()]
    reports = await asyncio.gather(*(reap(stores[n % 2], limit=20) for n in range(6)))
    reports.append(await reap(store))
    handled = [job.id for report in reports for job in report]
    assert sorted(run.id for run in runs) == sorted(handled)
    for run in runs[::5]:
        assert await event_types(store, run.id) == ["reaper:requeued"]
        assert len(await log_of(store, run)) == 1
    assert await reap(store) == []


async def test_a_pass_takes_no_more_than_its_limit(store: Store, clock: ManualClock) -> None:
    """The rest is there for the next pass."""
    await insert_some(store, 5)
    await claim(store, 5)
    clock.advance(LEASE + 1)
    assert [len(await reap(store, limit=3)) for _ in range(3)] == [3, 2, 0]


async def test_a_completion_and_a_reaper_at_once_agree(store: Store, clock: ManualClock, open_another: OpenAnother) -> None:
    """A late completion is accepted or the job is rescued, never both."""
    await insert_some(store, 40, backoff=[0.0])
    runs = (await claim(store, 40)).jobs
    clock.advance(LEASE + 1)
    other = open_another()
    completing = asyncio.gather(*(complete(store, run) for run in runs))
    reaping = asyncio.gather(*(reap(other, limit=5) for _ in range(8)))
    accepted = {run.id for run, done in zip(runs, await completing, strict=True) if done}
    reaped = {job.id for report in await reaping for job in report}
    assert accepted.isdisjoint(reaped)
    assert accepted == {run.id for run in runs if await state_of(store, run.id) is State.COMPLETED}
