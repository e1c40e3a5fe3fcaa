"""People act: cancel a job, or retry one that has ended."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import JobConflict, JobNotFound
from holdfast.job import State
from holdfast.store.protocol import Leaving, Store
from tests.conformance.scene import (
    claim,
    claimed_ids,
    complete,
    event_types,
    events_of,
    fail,
    insert,
    insert_some,
    leave,
    start,
    state_of,
)

NO_JOBS = ["01890000-0000-7000-8000-000000000000", "not-an-id", ""]


@pytest.mark.case("L9", "queue-6")
async def test_a_queued_job_is_cancelled_at_once_and_never_claimed(store: Store, clock: ManualClock) -> None:
    """Who cancelled it and when is on the job and in its event."""
    job = await insert(store, tenant="acme")
    cancelled = await store.job_cancel(job.id, "ana")
    assert (cancelled.state, cancelled.cancel_requested_by) == (State.CANCELLED, "ana")
    assert cancelled.finished_at == cancelled.cancel_requested_at == clock.now()
    assert cancelled == await store.job_get(job.id)
    (event,) = await events_of(store, job.id)
    assert (event.type, event.actor, event.tenant, event.at) == ("job.cancelled", "ana", "acme", clock.now())
    assert (await claim(store)).jobs == []


async def test_a_scheduled_job_that_is_cancelled_waits_for_nothing_any_more(store: Store, clock: ManualClock) -> None:
    """Its hold is gone, no due time is told for it, and it does not come back when its time comes."""
    job = await insert(store, delay=60.0)
    assert (await store.job_cancel(job.id, None)).hold is None
    assert (await claim(store)).next_due_seconds is None
    clock.advance(60)
    assert (await claim(store)).jobs == []


async def test_a_running_job_is_only_asked_to_stop(store: Store, clock: ManualClock) -> None:
    """It runs on as *cancelling*, under the same lease."""
    run = await start(store)
    cancelling = await store.job_cancel(run.id, "ana")
    assert (cancelling.state, cancelling.status, cancelling.run_id) == (State.RUNNING, "cancelling", run.run_id)
    assert (cancelling.cancel_requested_at, cancelling.cancel_requested_by) == (clock.now(), "ana")
    assert cancelling.finished_at is None
    assert await event_types(store, run.id) == ["job.cancel_requested"]


async def end_as(store: Store, state: str) -> str:
    """The id of a job that is in this state."""
    run = await start(store)
    if state == "completed":
        await complete(store, run)
    elif state == "failed":
        await leave(store, run, Leaving.FAIL)
    elif state == "cancelled":
        await leave(store, run, Leaving.CANCEL)
    elif state == "cancelling":
        await store.job_cancel(run.id, "somebody before")
    elif state == "queued":
        await leave(store, run, Leaving.RELEASE)
    return run.id


@pytest.mark.case("L11", "life-8")
@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "cancelling"])
async def test_what_cannot_be_cancelled_is_a_conflict_that_says_why(store: Store, state: str) -> None:
    """The code names the state, the sentence names the job, and nothing is changed."""
    job_id = await end_as(store, state)
    before = await store.job_get(job_id), await events_of(store, job_id)
    with pytest.raises(JobConflict, match=job_id) as refused:
        await store.job_cancel(job_id, "ana")
    assert refused.value.code == f"already_{state}"
    assert before == (await store.job_get(job_id), await events_of(store, job_id))


@pytest.mark.parametrize("job_id", NO_JOBS)
async def test_cancelling_a_job_that_is_not_there_says_so(store: Store, job_id: str) -> None:
    """Also where the id is no id at all."""
    with pytest.raises(JobNotFound, match=f"There is no job {job_id}"):
        await store.job_cancel(job_id, None)


async def test_of_many_cancels_at_once_one_counts(store: Store) -> None:
    """The others hear of a conflict, and there is one event."""
    job = await insert(store)
    answers = await asyncio.gather(*(store.job_cancel(job.id, f"p{n}") for n in range(10)), return_exceptions=True)
    assert [isinstance(answer, JobConflict) for answer in answers].count(False) == 1
    assert await event_types(store, job.id) == ["job.cancelled"]


async def test_of_a_cancel_and_a_claim_at_once_one_comes_first(store: Store) -> None:
    """A cancelled job is never handed out; one that was handed out is cancelling."""
    ids = await insert_some(store, 40)

    async def claim_all() -> set[str]:
        got: set[str] = set()
        for _ in range(20):
            got |= set(await claimed_ids(store, 2))
        return got

    claimed, *_ = await asyncio.gather(claim_all(), *(store.job_cancel(job_id, "ana") for job_id in ids))
    jobs = [await store.job_get(job_id) for job_id in ids]
    assert claimed == {job.id for job in jobs if job.status == "cancelling"}
    assert set(ids) - claimed == {job.id for job in jobs if job.state is State.CANCELLED}


# -- retry -----------------------------------------------------------------------------------------------------------------


@pytest.mark.case("L8", "L19", "recovery-ui-6")
@pytest.mark.parametrize("state", ["failed", "cancelled"])
async def test_a_retried_job_starts_anew_at_attempt_zero(store: Store, clock: ManualClock, state: str) -> None:
    """Queued now, under a new run id, with nothing left of its end."""
    job_id = await end_as(store, state)
    before = await store.job_get(job_id)
    clock.advance(60)
    retried = await store.job_retry_if_ended(job_id, "ana")
    assert retried == await store.job_get(job_id)
    assert (retried.state, retried.attempt, retried.hold, retried.run_at) == (State.QUEUED, 0, None, clock.now())
    assert retried.run_id != before.run_id
    assert (retried.error_code, retried.error_message, retried.finished_at, retried.started_at) == (None, None, None, None)
    assert (retried.locked_by, retried.cancel_requested_at, retried.cancel_requested_by) == (None, None, None)
    assert [(event.type, event.actor) for event in await events_of(store, job_id)][-1] == ("job.retried", "ana")


@pytest.mark.case("L19")
async def test_a_retry_keeps_the_history_and_run_numbers_go_on(store: Store) -> None:
    """Attempts start again at one, runs do not."""
    run = await fail(store)
    await store.job_retry_if_ended(run.id, None)
    assert [(1, run.run_id, "failed")] == [(one.run_no, one.run_id, one.outcome) for one in await store.run_list(run.id)]
    (again,) = (await claim(store)).jobs
    assert (again.attempt, again.run_no) == (1, 2)
    await complete(store, again)
    history = [(one.run_no, one.attempt, one.outcome) for one in await store.run_list(run.id)]
    assert history == [(2, 1, "completed"), (1, 1, "failed")]


async def test_the_history_of_a_failed_run_keeps_its_error(store: Store) -> None:
    """What the retry cleared from the job is still to be read on the run."""
    run = await fail(store)
    await store.job_retry_if_ended(run.id, None)
    (old,) = await store.run_list(run.id)
    assert (old.error_code, old.error_message, old.worker) == ("boom", "it broke", "worker-1")
    assert old.finished_at is not None


async def test_a_job_cancelled_before_its_first_run_has_no_run_to_keep(store: Store) -> None:
    """Its history is empty before and after the retry, and its first run is number one."""
    job = await insert(store)
    await store.job_cancel(job.id, None)
    await store.job_retry_if_ended(job.id, None)
    assert await store.run_list(job.id) == []
    (run,) = (await claim(store)).jobs
    assert run.run_no == 1


async def test_a_job_cancelled_between_two_attempts_is_in_the_history_once(store: Store) -> None:
    """The attempt before the cancel is not written down again by the retry."""
    run = await start(store)
    await leave(store, run, Leaving.RETRY, delay=60.0, error_code="boom")
    await store.job_cancel(run.id, None)
    assert [one.run_no for one in await store.run_list(run.id)] == [1]
    await store.job_retry_if_ended(run.id, None)
    assert [(one.run_no, one.outcome, one.error_code) for one in await store.run_list(run.id)] == [(1, "failed", "boom")]
    assert (await claim(store)).jobs[0].run_no == 2


@pytest.mark.case("L19")
@pytest.mark.parametrize(
    ("state", "code"), [("queued", "job_queued"), ("running", "job_running"), ("completed", "already_completed")]
)
async def test_what_cannot_be_retried_is_a_conflict_that_says_why(store: Store, state: str, code: str) -> None:
    """The code names the reason, the sentence names the job, and nothing is changed."""
    job_id = await end_as(store, state)
    before = await store.job_get(job_id), await events_of(store, job_id)
    with pytest.raises(JobConflict, match=job_id) as refused:
        await store.job_retry_if_ended(job_id, "ana")
    assert refused.value.code == code
    assert before == (await store.job_get(job_id), await events_of(store, job_id))


async def test_a_retry_does_not_make_a_second_active_job_of_a_unique_key(store: Store) -> None:
    """While a newer job has the key, the old one stays as it is; afterwards it may be retried."""
    old = await fail(store, unique_key="k")
    newer = await start(store, unique_key="k")
    with pytest.raises(JobConflict, match="unique key") as refused:
        await store.job_retry_if_ended(old.id, None)
    assert refused.value.code == "duplicate_active"
    assert await state_of(store, old.id) is State.FAILED
    assert await event_types(store, old.id) == ["job.failed"]
    assert [one.run_no for one in await store.run_list(old.id)] == [1]
    await complete(store, newer)
    assert (await store.job_retry_if_ended(old.id, None)).state is State.QUEUED


@pytest.mark.parametrize("job_id", NO_JOBS)
async def test_retrying_a_job_that_is_not_there_says_so(store: Store, job_id: str) -> None:
    """Also where the id is no id at all."""
    with pytest.raises(JobNotFound, match=f"There is no job {job_id}"):
        await store.job_retry_if_ended(job_id, None)


async def test_of_many_retries_at_once_one_counts(store: Store) -> None:
    """The job is queued once, and there is one event."""
    run = await fail(store)
    answers = await asyncio.gather(*(store.job_retry_if_ended(run.id, None) for _ in range(10)), return_exceptions=True)
    assert [isinstance(answer, JobConflict) for answer in answers].count(False) == 1
    assert await event_types(store, run.id) == ["job.failed", "job.retried"]
