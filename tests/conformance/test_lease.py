"""Leases and fences: a run speaks while it holds its lease, and not a word after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.clock import ManualClock
from holdfast.ids import new_run_id
from holdfast.job import State
from holdfast.store.protocol import Beat, Claimed, Completion, Leaving, Store
from tests.conformance.scene import (
    LEASE,
    append,
    beat,
    claim,
    complete,
    events_of,
    insert_some,
    leave,
    line,
    log_of,
    reap,
    start,
)


@pytest.mark.case("life-4")
async def test_a_heartbeat_extends_the_lease_from_now_on(store: Store, clock: ManualClock) -> None:
    """Lease and last heartbeat count from the moment of the beat."""
    run = await start(store)
    clock.advance(200)
    (held,) = await store.lease_extend_if_held([Beat(run.id, run.run_id, 120.0)])
    assert (held.id, held.run_id, held.cancel_requested, held.cancel_requested_by) == (run.id, run.run_id, False, None)
    found = await store.job_get(run.id)
    assert found.last_heartbeat_at == clock.now()
    assert found.lease_expires_at == clock.now() + timedelta(seconds=120)


async def test_a_heartbeat_tells_who_wants_the_job_cancelled(store: Store) -> None:
    """That is how a worker without notifications learns of it."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    (held,) = await store.lease_extend_if_held([Beat(run.id, run.run_id, LEASE)])
    assert (held.cancel_requested, held.cancel_requested_by) == (True, "ana")


async def test_a_beat_for_many_answers_those_that_are_held(store: Store) -> None:
    """What is missing from the answer is lost; the others are extended all the same."""
    await insert_some(store, 3)
    kept, done, stolen = (await claim(store, 3)).jobs
    await complete(store, done)
    held = await store.lease_extend_if_held(
        [Beat(kept.id, kept.run_id, LEASE), Beat(done.id, done.run_id, LEASE), Beat(stolen.id, new_run_id(), LEASE)]
    )
    assert [kept.run_id] == [one.run_id for one in held]


async def test_a_beat_for_nobody_is_no_error(store: Store) -> None:
    """An idle worker's heart may beat for nothing."""
    assert await store.lease_extend_if_held([]) == []


async def test_a_late_beat_saves_a_lease_that_nobody_took(store: Store, clock: ManualClock) -> None:
    """A lease that has run out is still held until a reaper comes by."""
    run = await start(store)
    clock.advance(LEASE + 10)
    assert await beat(store, run)
    assert await reap(store) == []


async def test_a_worker_can_ask_which_leases_it_holds(store: Store) -> None:
    """Also those of a claim whose answer it never got; nobody else's, and none that it has given back."""
    await insert_some(store, 4)
    mine = (await claim(store, 3, worker="me")).jobs
    await claim(store, 1, worker="somebody else")
    await complete(store, mine[0])
    listed = await store.lease_list("me")
    assert sorted(run.run_id for run in mine[1:]) == sorted(lease.run_id for lease in listed)
    assert {LEASE} == {lease.lease_seconds for lease in listed}
    assert await store.lease_list("nobody") == []


# -- after the lease is gone -----------------------------------------------------------------------------------------------

Loss = Callable[[Store, Claimed, ManualClock], Awaitable[Any]]


def left(how: Leaving) -> Loss:
    async def lose(store: Store, run: Claimed, clock: ManualClock) -> None:
        assert await leave(store, run, how) is not None

    return lose


async def completed(store: Store, run: Claimed, clock: ManualClock) -> None:
    assert await complete(store, run, '"first"')


async def reaped(store: Store, run: Claimed, clock: ManualClock) -> None:
    clock.advance(LEASE + 1)
    assert len(await reap(store)) == 1


async def cancelled_by_reaper(store: Store, run: Claimed, clock: ManualClock) -> None:
    await store.job_cancel(run.id, "ana")
    await reaped(store, run, clock)


async def claimed_again(store: Store, run: Claimed, clock: ManualClock) -> None:
    await leave(store, run, Leaving.RELEASE)
    assert len((await claim(store, worker="worker-2")).jobs) == 1


async def failed_and_retried(store: Store, run: Claimed, clock: ManualClock) -> None:
    await leave(store, run, Leaving.FAIL)
    await store.job_retry_if_ended(run.id, None)


LOSSES: dict[str, Loss] = {
    **{f"left by {how.value}": left(how) for how in Leaving},
    "completed": completed,
    "reaped": reaped,
    "cancelled by the reaper": cancelled_by_reaper,
    "claimed again": claimed_again,
    "failed and retried": failed_and_retried,
}


async def complete_by_statement(store: Store, completion: Completion) -> list[dict[str, Any]]:
    statement = store.complete_statement(completion)
    async with store.transaction() as tx:
        return await tx.fetch(statement.sql, statement.parameter)


async def accepted_acts(store: Store, run: Claimed) -> list[str]:
    """Everything a run may say, all of it tried; which of it was taken."""
    completion = Completion(run.id, run.run_id, '"late"')
    tried = {
        "beat": await store.lease_extend_if_held([Beat(run.id, run.run_id, LEASE)]),
        "progress": await store.progress_set_if_leased(run.id, run.run_id, 0.9, "late"),
        "log": await append(store, run, line(run, 99, "late")),
        "step": await store.step_save_if_leased(run.id, run.run_id, "late", "f", "1"),
        "complete by statement": await complete_by_statement(store, completion),
        "complete": await store.job_complete_if_leased([completion]),
        **{how.value: await leave(store, run, how, error_code="late") for how in Leaving},
    }
    return [act for act, answer in tried.items() if answer]


@pytest.mark.case("L28")
@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "completed"])
async def test_nothing_of_a_run_that_lost_its_lease_is_accepted(store: Store, clock: ManualClock, loss: str) -> None:
    """Complete, leave, beat, log, progress and step are all refused, and leave no trace."""
    run = await start(store, max_attempts=5, backoff=[0.0])
    await append(store, run, line(run, 1, "in time"))
    await LOSSES[loss](store, run, clock)

    async def everything() -> tuple[object, ...]:
        return (
            await store.job_get(run.id),
            await store.run_list(run.id),
            await events_of(store, run.id),
            await log_of(store, run),
            await store.step_get(run.id, "late", "f"),
        )

    before = await everything()
    assert await accepted_acts(store, run) == []
    assert before == await everything()


async def test_a_run_that_has_completed_may_only_say_its_last_words(store: Store, clock: ManualClock) -> None:
    """Only the run itself can have completed it, perhaps in its own transaction, before its lines and progress were written."""
    run = await start(store)
    await LOSSES["completed"](store, run, clock)
    before = await store.job_get(run.id)
    assert await accepted_acts(store, run) == ["progress", "log"]
    after = await store.job_get(run.id)
    assert before == msgspec.structs.replace(after, progress=before.progress, stage=before.stage, updated_at=before.updated_at)


async def test_the_run_that_holds_the_lease_is_heard(store: Store) -> None:
    """The other side of the fence: the same acts are accepted while the lease lasts."""
    run = await start(store)
    assert await accepted_acts(store, run) == ["beat", "progress", "log", "step", "complete by statement"]
    assert (await store.job_get(run.id)).state is State.COMPLETED


async def test_a_run_id_of_another_job_opens_no_door(store: Store) -> None:
    """The fence is the pair of job and run: a valid run id on the wrong job is refused."""
    await insert_some(store, 2)
    one, other = (await claim(store, 2)).jobs
    one.run_id = other.run_id
    assert await accepted_acts(store, one) == []
    assert State.RUNNING is (await store.job_get(one.id)).state is (await store.job_get(other.id)).state


async def test_the_states_of_runs_are_those_of_their_jobs(store: Store) -> None:
    """Asked about a run that was refused; a run id that is no longer the job's newest is missing."""
    await insert_some(store, 2)
    running, done = (await claim(store, 2)).jobs
    await complete(store, done)
    asked = [(running.id, running.run_id), (done.id, done.run_id), (running.id, new_run_id())]
    assert await store.run_states(asked) == {running.run_id: State.RUNNING, done.run_id: State.COMPLETED}
    assert await store.run_states([]) == {}
