"""Leases, heartbeats and deadlines: of async tasks, threads and blocked event loops."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.processes import heart
from tests.cases.steps import comes_to, drain, ends, in_a_thread, messages, working
from tests.support.waiting import until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that does not let go is fenced off after 0.2 s instead of 5, a blocked loop is noticed after 0.1 s."""
    monkeypatch.setattr(heart, "STUCK_SECONDS", 0.2)
    monkeypatch.setattr(heart, "LOOP_BLOCKED_SECONDS", 0.1)


async def test_an_async_task_past_its_deadline_is_cancelled(hf: Holdfast) -> None:
    """It may clean up; the code is deadline_exceeded, and it is tried again like any failure."""
    cleaned: list[int] = []

    @hf.task(timeout=0.1, max_attempts=2, backoff=(0,))
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(current().attempt)

    job = await hang.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.error_code) == (State.FAILED, 2, "deadline_exceeded")
    assert failed.error_message == "took longer than the 0.1 s it may take"
    assert cleaned == [1, 2]
    assert await messages(hf, job) == ["Attempt 2 of 2 failed: took longer than the 0.1 s it may take"]


async def test_the_slot_of_a_cancelled_run_serves_the_next_job(hf: Holdfast) -> None:
    """Also one that uses a task group of its own, which cancels the slot's task for itself."""

    @hf.task(timeout=0.05, max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    @hf.task
    async def own_group() -> str:
        async def fail() -> None:
            raise ValueError("in the group")

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
                await asyncio.Event().wait()
        except ExceptionGroup:
            return "its own error"
        return "none"

    await hang.enqueue()
    job = await own_group.enqueue()
    await drain(hf, concurrency=1)
    assert await job.result(timeout=0) == "its own error"


async def test_expected_times_the_sla_factor_is_a_deadline_too(hf: Holdfast) -> None:
    """A task that says how long it should take may take six times as long."""

    @hf.task(expected=0.02, max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    job = await hang.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).error_message == "took longer than the 0.12 s it may take"


@pytest.mark.case("L24")
async def test_a_task_that_swallows_its_cancellation_and_returns_keeps_its_result(hf: Holdfast) -> None:
    """It was late but it did its work: the result counts, and the worker goes on."""

    @hf.task(timeout=0.05)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "late"

    jobs = [await stubborn.enqueue(), await stubborn.enqueue()]
    end = await drain(hf, concurrency=1)
    assert [await job.result(timeout=0) for job in jobs] == ["late", "late"] and end.reason == "idle"


@pytest.mark.case("L24")
@pytest.mark.usefixtures("impatient")
async def test_a_task_that_swallows_every_cancellation_is_fenced_off(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job fails, its result is refused, and the worker ends as stuck instead of hanging with it."""
    monkeypatch.setattr("holdfast.processes.worker.LET_GO_SECONDS", 0.1)
    go, gone = asyncio.Event(), asyncio.Event()

    @hf.task(timeout=0.05, max_attempts=1)
    async def immortal() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass
        gone.set()
        return "too late"

    job = await immortal.enqueue()
    try:
        end = await drain(hf)
    finally:
        go.set()
    assert (end.reason, end.threads_left) == ("stuck", 1)
    await gone.wait()
    failed = await hf.get(job.id)
    assert (failed.state, failed.error_code, failed.output) == (State.FAILED, "deadline_exceeded", None)


async def test_a_thread_past_its_deadline_is_fenced_off_and_the_worker_ends_stuck(hf: Holdfast) -> None:
    """Nothing can stop a thread: its job fails, its late result is refused, its neighbours are not lost."""
    go, returned = threading.Event(), threading.Event()

    @hf.task(timeout=0.1, isolate=False, max_attempts=1)
    def hang() -> str:
        go.wait(60)
        returned.set()
        return "too late"

    @hf.task
    async def good() -> str:
        return "ok"

    job, neighbour = await hang.enqueue(), await good.enqueue()
    end = await drain(hf)
    assert (end.reason, end.threads_left) == ("stuck", 1)
    go.set()
    await until(returned.is_set)
    failed = await hf.get(job.id)
    assert (failed.state, failed.error_code, failed.output) == (State.FAILED, "deadline_exceeded", None)
    assert await neighbour.result(timeout=0) == "ok"


@pytest.mark.usefixtures("impatient")
async def test_a_stuck_worker_gives_its_other_jobs_back_after_their_grace(hf: Holdfast) -> None:
    """The long neighbour of a stuck thread is queued again, uncounted."""
    import dataclasses

    hf.settings = dataclasses.replace(hf.settings, grace=0.05)
    go = threading.Event()

    @hf.task(timeout=0.1, isolate=False, max_attempts=1)
    def hang() -> None:
        go.wait(60)

    @hf.task
    async def long() -> None:
        await asyncio.Event().wait()

    await hang.enqueue()
    neighbour = await long.enqueue()
    end = await drain(hf)
    go.set()
    back = await hf.get(neighbour.id)
    assert (end.reason, back.state, back.attempt) == ("stuck", State.QUEUED, 0)


@pytest.mark.case("life-4")
async def test_a_job_that_blocks_the_event_loop_keeps_its_lease(hf: Holdfast) -> None:
    """The heart beats from a thread of its own: the lease moves on several times while nothing else in the worker can."""
    go = threading.Event()

    @hf.task(lease=3.0)  # a beat each second: a busy machine may be late by two
    async def block() -> str:
        go.wait(60)
        return "kept"

    job = await block.enqueue()
    worker = hf.worker(exit_when_idle=0.0)
    thread = in_a_thread(worker)
    running = await comes_to(hf, job, State.RUNNING)
    seen = {running.lease_expires_at}

    async def moved_on_for_longer_than_the_lease() -> bool:
        now = await hf.get(job.id)
        seen.add(now.lease_expires_at)
        assert now.run_id == job.run_id
        assert running.lease_expires_at and now.lease_expires_at
        return now.lease_expires_at - running.lease_expires_at > timedelta(seconds=3) and len(seen) > 3

    await until(moved_on_for_longer_than_the_lease)
    assert not await hf.reap()
    go.set()
    assert await job.result(timeout=40) == "kept"
    await until(lambda: not thread.is_alive())


@pytest.mark.usefixtures("impatient")
async def test_a_blocked_loop_past_its_deadline_is_fenced_off_and_all_its_jobs_are_given_back(hf: Holdfast) -> None:
    """The heart does it where the loop cannot, and asks for a new process."""
    go, stuck = threading.Event(), threading.Event()

    @hf.task(timeout=0.1, max_attempts=1)
    async def block() -> None:
        go.wait(60)

    @hf.task(priority=1)
    async def neighbour() -> None:
        await asyncio.Event().wait()

    beside = await neighbour.enqueue()
    job = await block.enqueue()
    thread = in_a_thread(hf.worker(on_stuck=stuck.set))
    await until(stuck.is_set)
    failed, back = await hf.get(job.id), await hf.get(beside.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "deadline_exceeded")
    assert failed.error_message == "took longer than the 0.1 s it may take and could not be stopped"
    assert (back.state, back.attempt) == (State.QUEUED, 0)
    go.set()
    await until(lambda: not thread.is_alive())
    assert (await hf.get(job.id)).state is State.FAILED


@pytest.mark.case("L13", "recovery-2")
async def test_the_reaper_leaves_a_job_alone_that_beats(hf_at: Holdfast, clock: ManualClock) -> None:
    """Three hours in steps of four minutes with a lease of five: untouched."""
    go = asyncio.Event()

    @hf_at.task
    async def long() -> str:
        await go.wait()
        return "done"

    job = await long.enqueue()
    async with working(hf_at) as worker:
        await comes_to(hf_at, job, State.RUNNING)
        for _ in range(45):
            clock.advance(240)
            worker._heart.beat_soon()
            now = clock.now()

            async def beaten(now: object = now) -> bool:
                return (await hf_at.get(job.id)).last_heartbeat_at == now

            await until(beaten)
            assert not await hf_at.reap()
        go.set()
        done = await ends(hf_at, job)
    assert (done.output, done.attempt) == ("done", 1)


async def test_a_run_that_lost_its_lease_is_told_and_stopped(hf_at: Holdfast, clock: ManualClock) -> None:
    """A worker that slept past its lease learns it with the next beat; its run is cancelled and writes nothing."""
    told: list[str] = []

    @hf_at.task(backoff=(600,))
    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(current().run_id)
            raise
        return "never"

    job = await work.enqueue()
    async with working(hf_at) as worker:
        await comes_to(hf_at, job, State.RUNNING)
        clock.advance(301)
        assert (await hf_at.reap()).requeued == [job.id]
        worker._heart.beat_soon()
        await until(lambda: told)
        await until(lambda: not worker.running)
    lost = await hf_at.get(job.id)
    assert told == [job.run_id] and (lost.state, lost.attempt, lost.status) == (State.QUEUED, 1, "retrying")


async def test_jobs_claimed_ahead_do_not_wait_behind_a_long_one(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that claimed ahead gives back what its slots cannot start; a neighbour runs it, and it is not claimed again."""
    monkeypatch.setattr("holdfast.processes.slots.WAITING_SECONDS_MAX", 0.1)
    go = asyncio.Event()
    ran: list[int] = []

    @hf.task
    async def quick(n: int) -> None:
        ran.append(n)

    @hf.task
    async def long() -> None:
        await go.wait()

    await hf.enqueue_many([quick.job(n) for n in range(1000)])
    slow = await long.enqueue()
    behind = await hf.enqueue_many([quick.job(n) for n in range(1000, 1200)])
    async with working(hf, concurrency=1) as worker:
        await comes_to(hf, slow, State.RUNNING)
        await until(lambda: not worker._slots.waiting)

        async def neighbour_did_the_rest() -> bool:
            await drain(hf)
            return len(ran) == 1200

        await until(neighbour_did_the_rest)
        assert {(await hf.get(job.id)).attempt for job in behind[::20]} == {1}
        go.set()
        await ends(hf, slow)


@pytest.mark.usefixtures("impatient")
async def test_a_blocked_loop_gives_back_what_it_claimed_ahead(hf: Holdfast) -> None:
    """Jobs that wait behind a blocked loop were never started: the heart returns them too."""
    go, stuck = threading.Event(), threading.Event()

    @hf.task
    async def quick() -> None: ...

    @hf.task(timeout=0.1, max_attempts=1)
    async def block() -> None:
        go.wait(60)

    await hf.enqueue_many([quick.job() for _ in range(1000)])
    await block.enqueue()
    behind = await hf.enqueue_many([quick.job() for _ in range(100)])
    thread = in_a_thread(hf.worker(on_stuck=stuck.set, concurrency=1))
    await until(stuck.is_set)
    states = {(job.state, job.attempt) for job in [await hf.get(job.id) for job in behind]}
    go.set()
    await until(lambda: not thread.is_alive())
    assert states == {(State.QUEUED, 0)}
