"""Step 4, the end of a run: completed, or left in one of five other ways."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import JobConflict
from holdfast.ids import new_run_id
from holdfast.job import Hold, State
from holdfast.store.protocol import Claimed, Completion, Departure, Leaving, Store
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import claim, claimed_ids, complete, event_types, events_of, insert_some, leave, start, state_of


@pytest.mark.case("life-1", "queue-2")
async def test_a_completed_job_has_its_result_and_its_time(store: Store, clock: ManualClock) -> None:
    """The result is kept, the end is dated, and lease and deadline are gone."""
    run = await start(store, timeout_seconds=60.0)
    clock.advance(7)
    assert await complete(store, run, '{"sent": [1, 2.5, null, "é"]}')
    found = await store.job_get(run.id)
    assert (found.state, found.output) == (State.COMPLETED, {"sent": [1, 2.5, None, "é"]})
    assert (found.finished_at, found.updated_at) == (clock.now(), clock.now())
    assert (found.lease_expires_at, found.deadline) == (None, None)


@pytest.mark.case("life-1")
async def test_completion_clears_the_error_of_earlier_attempts(store: Store) -> None:
    """A job that worked in the end shows no error."""
    run = await start(store)
    await leave(store, run, Leaving.RETRY, error_code="boom", error_message="it broke")
    (again,) = (await claim(store)).jobs
    assert await complete(store, again)
    found = await store.job_get(run.id)
    assert (found.error_code, found.error_message) == (None, None)


@pytest.mark.parametrize(("text", "value"), [(None, None), ("null", None), ('"text"', "text"), ("0", 0), ("false", False)])
async def test_any_json_is_a_result(store: Store, text: str | None, value: object) -> None:
    """Nothing, text and plain values come back as they are."""
    run = await start(store)
    await complete(store, run, text)
    assert (await store.job_get(run.id)).output == value


async def test_a_job_that_simply_works_writes_no_history(store: Store) -> None:
    """No event, and its one run is read from its own row."""
    run = await start(store)
    await complete(store, run)
    assert await events_of(store, run.id) == []
    assert [(one.run_no, one.outcome) for one in await store.run_list(run.id)] == [(1, "completed")]


async def test_a_batch_of_completions_answers_which_were_accepted(store: Store) -> None:
    """The good ones count although others in the batch had lost their lease; each gets its own result."""
    await insert_some(store, 4)
    runs = (await claim(store, 4)).jobs
    await leave(store, runs[0], Leaving.RELEASE)
    batch = [Completion(run.id, run.run_id, str(number)) for number, run in enumerate(runs)]
    batch.append(Completion(new_run_id(), new_run_id(), None))
    assert {run.run_id for run in runs[1:]} == await store.job_complete_if_leased(batch)
    assert [(await store.job_get(run.id)).output for run in runs] == [None, 1, 2, 3]
    assert await store.job_complete_if_leased([]) == set()


async def test_a_second_completion_is_refused(store: Store) -> None:
    """Never twice: the first result stands."""
    run = await start(store)
    assert await complete(store, run, '"first"')
    assert not await complete(store, run, '"second"')
    assert (await store.job_get(run.id)).output == "first"


# -- leaving ---------------------------------------------------------------------------------------------------------------


async def test_a_retry_waits_its_time_under_a_new_run_id(store: Store, clock: ManualClock) -> None:
    """The attempt counts, the error is shown, and nobody's name is on the job any more."""
    run = await start(store, timeout_seconds=60.0)
    state = await leave(store, run, Leaving.RETRY, delay=90.0, error_code="boom", error_message="it broke", stage="packing")
    found = await store.job_get(run.id)
    assert State.QUEUED is state is found.state
    assert (found.hold, found.run_at, found.status) == (Hold.TIME, clock.now() + timedelta(seconds=90), "retrying")
    assert (found.attempt, found.error_code, found.error_message, found.stage) == (1, "boom", "it broke", "packing")
    assert found.run_id != run.run_id
    assert (found.locked_by, found.machine_id, found.lease_expires_at, found.deadline) == (None, None, None, None)
    assert (await claim(store)).jobs == []
    clock.advance(90)
    (again,) = (await claim(store)).jobs
    assert (again.attempt, again.run_no, again.run_id) == (2, 2, found.run_id)


@pytest.mark.parametrize(("how", "outcome"), [(Leaving.SNOOZE, "snoozed"), (Leaving.RELEASE, "released")])
async def test_snooze_and_release_cost_no_attempt(store: Store, how: Leaving, outcome: str) -> None:
    """The job goes back with its attempt, and its run into the history."""
    run = await start(store)
    assert await leave(store, run, how) is State.QUEUED
    found = await store.job_get(run.id)
    assert (found.attempt, found.run_no, found.hold) == (0, 1, None)
    assert [(1, 1, outcome)] == [(one.run_no, one.attempt, one.outcome) for one in await store.run_list(run.id)]
    assert [f"job.{outcome}"] == await event_types(store, run.id)
    (again,) = (await claim(store)).jobs
    assert (again.attempt, again.run_no) == (1, 2)


async def test_a_snooze_waits_its_time(store: Store, clock: ManualClock) -> None:
    """It is not handed out before."""
    run = await start(store)
    await leave(store, run, Leaving.SNOOZE, delay=30.0)
    assert (await claim(store)).next_due_seconds == 30.0
    clock.advance(30)
    assert [run.id] == await claimed_ids(store)


@pytest.mark.parametrize("how", [Leaving.RETRY, Leaving.FAIL])
async def test_a_failure_that_is_not_the_runs_fault_gives_the_attempt_back(store: Store, how: Leaving) -> None:
    """`keep_attempt=False` costs nothing, whether the job goes on or not."""
    run = await start(store)
    await leave(store, run, how, keep_attempt=False)
    assert (await store.job_get(run.id)).attempt == 0


@pytest.mark.case("life-2")
async def test_a_failed_job_keeps_what_went_wrong_and_who_had_it(store: Store, clock: ManualClock) -> None:
    """Code, message, stage and time are set; worker and attempt stay to be seen."""
    run = await start(store)
    clock.advance(3)
    state = await leave(store, run, Leaving.FAIL, error_code="boom", error_message="it broke", stage="packing")
    found = await store.job_get(run.id)
    assert State.FAILED is state is found.state
    assert (found.error_code, found.error_message, found.stage) == ("boom", "it broke", "packing")
    assert (found.finished_at, found.locked_by, found.attempt) == (clock.now(), "worker-1", 1)
    assert (found.lease_expires_at, found.deadline) == (None, None)
    assert (await claim(store)).jobs == []


@pytest.mark.parametrize("how", [how for how in Leaving if how is not Leaving.CANCEL])
async def test_a_requested_cancel_turns_every_way_out_into_cancelled(store: Store, how: Leaving) -> None:
    """A job that somebody wants cancelled is never queued again."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    assert await leave(store, run, how, delay=60.0) is State.CANCELLED
    found = await store.job_get(run.id)
    assert (found.state, found.cancel_requested_by, found.attempt) == (State.CANCELLED, "ana", 1)
    events = await events_of(store, run.id)
    assert [(event.type, event.actor) for event in events] == [("job.cancel_requested", "ana"), ("job.cancelled", "ana")]


async def test_a_run_may_cancel_itself(store: Store, clock: ManualClock) -> None:
    """Nobody need have asked for it."""
    run = await start(store)
    assert await leave(store, run, Leaving.CANCEL) is State.CANCELLED
    assert (await store.job_get(run.id)).finished_at == clock.now()


async def test_leaving_says_in_an_event_what_happened(store: Store, clock: ManualClock) -> None:
    """Run, attempt, error and delay are in the event of a retry."""
    run = await start(store, tenant="acme")
    await leave(store, run, Leaving.RETRY, delay=5.0, error_code="boom", error_message="it broke")
    (event,) = await events_of(store, run.id)
    assert (event.type, event.job_id, event.tenant, event.at) == ("job.retrying", run.id, "acme", clock.now())
    said = {"run_no": 1, "attempt": 1, "error_code": "boom", "error_message": "it broke", "delay": 5.0}
    assert said == event.data


async def test_each_ended_run_stays_in_the_history(store: Store, clock: ManualClock) -> None:
    """Newest first, each with its own worker, times, stage and error; the last one is on the job's own row."""
    await insert_some(store, 1)
    began = clock.now()
    (first,) = (await claim(store, worker="one", machine="m1")).jobs
    clock.advance(10)
    await leave(store, first, Leaving.RETRY, error_code="boom", error_message="it broke", stage="packing")
    (second,) = (await claim(store, worker="two")).jobs
    newest, oldest = await store.run_list(first.id)
    assert (oldest.run_no, oldest.run_id, oldest.attempt, oldest.outcome) == (1, first.run_id, 1, "failed")
    assert (oldest.worker, oldest.machine_id, oldest.stage) == ("one", "m1", "packing")
    assert (oldest.error_code, oldest.error_message) == ("boom", "it broke")
    assert (oldest.started_at, oldest.finished_at) == (began, clock.now())
    assert (newest.run_no, newest.run_id, newest.outcome, newest.worker) == (2, second.run_id, "running", "two")


async def test_a_batch_of_departures_answers_where_each_went(store: Store) -> None:
    """One statement for many: each goes its own way, the lost ones are missing from the answer."""
    await insert_some(store, 4)
    runs = (await claim(store, 4)).jobs
    lost = runs.pop()
    await complete(store, lost)
    ways = [Leaving.RETRY, Leaving.FAIL, Leaving.CANCEL, Leaving.FAIL]
    departures = [Departure(id=run.id, run_id=run.run_id, how=how) for run, how in zip([*runs, lost], ways, strict=True)]
    went = dict(zip([run.run_id for run in runs], [State.QUEUED, State.FAILED, State.CANCELLED], strict=True))
    assert went == await store.job_leave_if_leased(departures)
    assert await store.job_leave_if_leased([]) == {}


# -- progress --------------------------------------------------------------------------------------------------------------


async def test_progress_and_stage_are_shown_while_it_runs(store: Store) -> None:
    """Either may be set alone; what is not given stays."""
    run = await start(store)
    assert await store.progress_set_if_leased(run.id, run.run_id, 0.25, "packing")
    assert await store.progress_set_if_leased(run.id, run.run_id, 0.5, None)
    assert await store.progress_set_if_leased(run.id, run.run_id, None, "sending")
    found = await store.job_get(run.id)
    assert (found.progress, found.stage) == (0.5, "sending")


# -- at the same instant ---------------------------------------------------------------------------------------------------


async def cancel_as_a_worker_does(store: Store, run: Claimed) -> bool:
    """Whether the cancel won: asked for in time, and then carried out."""
    try:
        await store.job_cancel(run.id, "ana")
    except JobConflict as conflict:
        assert conflict.code == "already_completed"
        return False
    return await leave(store, run, Leaving.CANCEL) is State.CANCELLED


@pytest.mark.case("L16")
async def test_of_a_cancel_and_a_completion_at_the_same_instant_one_wins(store: Store, open_another: OpenAnother) -> None:
    """Sixty races: one of the two is accepted, never both nor neither, and the state agrees."""
    other = open_another()
    await insert_some(store, 60)
    runs = (await claim(store, 60)).jobs
    racing = [racer for run in runs for racer in (complete(store, run, '"done"'), cancel_as_a_worker_does(other, run))]
    answers = await asyncio.gather(*racing)
    for run, did_complete, did_cancel in zip(runs, answers[::2], answers[1::2], strict=True):
        assert did_complete != did_cancel
        job = await store.job_get(run.id)
        assert job.state is (State.COMPLETED if did_complete else State.CANCELLED)
        assert job.output == ("done" if did_complete else None)
        assert ("job.cancelled" in await event_types(store, run.id)) == did_cancel


async def test_a_completion_that_comes_before_the_cancel_is_carried_out_wins(store: Store) -> None:
    """A cancel is a request to a running job: what it finishes first is finished."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    assert await complete(store, run)
    assert await state_of(store, run.id) is State.COMPLETED
