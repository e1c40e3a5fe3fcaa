"""Cancel: at once while queued, at the next boundary while running, and never undone."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import Holdfast, State, current, step
from holdfast.clock import ManualClock
from holdfast.errors import JobCancelled, JobConflict, JobNotFound
from tests.cases.steps import comes_to, drain, ends, messages, working
from tests.support.waiting import until


@pytest.mark.case("L9", "queue-6")
async def test_a_queued_job_is_cancelled_at_once_and_never_claimed(hf: Holdfast) -> None:
    """No worker sees it any more; the event says who."""
    ran: list[str] = []

    @hf.task
    async def work(name: str) -> None:
        ran.append(name)

    job = await work.enqueue("cancelled")
    await work.enqueue("kept")
    cancelled = await hf.cancel(job.id, by="ana")
    assert (cancelled.state, cancelled.cancel_requested_by) == (State.CANCELLED, "ana")
    assert cancelled.finished_at is not None and cancelled.attempt == 0
    await drain(hf)
    assert ran == ["kept"]
    assert [(event.type, event.actor) for event in await hf.events(job.id)] == [("job.cancelled", "ana")]


async def test_a_scheduled_or_retrying_job_is_cancelled_at_once(hf_at: Holdfast, clock: ManualClock) -> None:
    """Waiting for its time does not protect it."""

    @hf_at.task(backoff=(60,))
    async def fail() -> None:
        raise ValueError

    scheduled, retrying = await fail.options(delay=60).enqueue(), await fail.enqueue()
    await drain(hf_at)
    for job in (scheduled, retrying):
        assert (await hf_at.cancel(job.id)).state is State.CANCELLED
    clock.advance(3600)
    assert (await drain(hf_at)).jobs == 0


@pytest.mark.case("L10", "life-3")
async def test_a_running_job_stops_at_its_next_step_and_runs_the_rest_of_nothing(hf: Holdfast) -> None:
    """*Cancelling* until the boundary; then cancelled, logged by name, and the worker takes the next job."""
    ran: list[str] = []
    go, started = asyncio.Event(), asyncio.Event()

    @hf.task
    async def pipeline() -> None:
        await step("first", ran.append, "first")
        started.set()
        await go.wait()
        await step("second", ran.append, "second")

    @hf.task
    async def after() -> str:
        return "next"

    job, following = await pipeline.enqueue(), await after.enqueue()
    async with working(hf, concurrency=1) as worker:
        await started.wait()
        asked = await hf.cancel(job.id, by="ana")
        assert (asked.state, asked.status) == (State.RUNNING, "cancelling")
        with pytest.raises(JobConflict) as twice:
            await hf.cancel(job.id, by="bo")
        assert twice.value.code == "already_cancelling"
        await until(lambda: all(attempt.cancelled for attempt in worker.running.values()))
        go.set()
        cancelled = await ends(hf, job)
        assert await following.result(timeout=40) == "next"
    assert (cancelled.state, cancelled.cancel_requested_by, ran) == (State.CANCELLED, "ana", ["first"])
    assert await messages(hf, job) == ["Cancelled by ana"]
    assert [(event.type, event.actor) for event in await hf.events(job.id)] == [
        ("job.cancel_requested", "ana"),
        ("job.cancelled", "ana"),
    ]
    assert [run.outcome for run in await hf.runs(job.id)] == ["cancelled"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_task_can_ask_whether_it_is_cancelled(hf: Holdfast, kind: str) -> None:
    """The news comes while the task runs, without waiting for the next heartbeat."""

    @hf.task
    async def poll_async() -> None:
        while not current().cancelled:
            await asyncio.sleep(0)
        current().check_cancelled()

    @hf.task
    def poll_in_thread() -> None:
        pause = threading.Event()
        while not current().cancelled:
            pause.wait(0.005)
        current().check_cancelled()

    job = await (poll_async if kind == "async" else poll_in_thread).enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await hf.cancel(job.id, by="ana")
        assert (await ends(hf, job)).state is State.CANCELLED


async def test_an_async_task_that_opted_in_is_cancelled_where_it_is(hf: Holdfast) -> None:
    """cancel="immediate" interrupts an await; the task may still clean up."""
    cleaned: list[bool] = []

    @hf.task(cancel="immediate")
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    job = await hang.enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await hf.cancel(job.id, by="ana")
        cancelled = await ends(hf, job)
    assert (cancelled.state, cleaned) == (State.CANCELLED, [True])
    assert await messages(hf, job) == ["Cancelled by ana"]


async def test_an_immediate_cancel_does_not_abandon_a_thread(hf: Holdfast) -> None:
    """A thread cannot be stopped, so its job is *cancelling* until the function looks or returns."""
    go = threading.Event()

    @hf.task(cancel="immediate")
    def work() -> None:
        go.wait(60)
        current().check_cancelled()

    job = await work.enqueue()
    async with working(hf) as worker:
        await comes_to(hf, job, State.RUNNING)
        await hf.cancel(job.id)
        await until(lambda: all(attempt.cancelled for attempt in worker.running.values()))
        assert (await hf.get(job.id)).status == "cancelling"
        go.set()
        assert (await ends(hf, job)).state is State.CANCELLED


async def test_a_cancelled_run_that_fails_is_cancelled_and_not_tried_again(hf: Holdfast) -> None:
    """The error stays readable, the promise of a retry is not made."""
    go = asyncio.Event()

    @hf.task(backoff=(0,))
    async def fail() -> None:
        await go.wait()
        raise ValueError("on the way out")

    job = await fail.enqueue()
    async with working(hf) as worker:
        await comes_to(hf, job, State.RUNNING)
        await hf.cancel(job.id, by="ana")
        await until(lambda: all(attempt.cancelled for attempt in worker.running.values()))
        go.set()
        cancelled = await ends(hf, job)
    assert cancelled.state is State.CANCELLED
    assert await messages(hf, job) == ["Attempt 1 of 3 failed: ValueError: on the way out", "Cancelled by ana"]


async def test_a_completion_that_comes_before_the_task_looks_wins(hf: Holdfast) -> None:
    """A task that never looks completes, although somebody asked for a cancel."""
    go = asyncio.Event()

    @hf.task
    async def deaf() -> str:
        await go.wait()
        return "done"

    job = await deaf.enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await hf.cancel(job.id)
        go.set()
        assert await job.result(timeout=40) == "done"


async def test_waiting_for_a_cancelled_job_does_not_cancel_the_waiting_one(hf: Holdfast) -> None:
    """JobCancelled from another job's result is an ordinary error of this one."""

    @hf.task
    async def other() -> None: ...

    cancelled = await other.options(queue="elsewhere").enqueue()
    await hf.cancel(cancelled.id)

    @hf.task(max_attempts=1)
    async def wait_for(job_id: str) -> None:
        await hf.wait_for_result(job_id)

    job = await wait_for.enqueue(cancelled.id)
    await drain(hf, queues=["default"])
    failed = await hf.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "job_cancelled")


@pytest.mark.case("L27")
async def test_cancel_requested_then_the_worker_dies_makes_it_cancelled(hf_at: Holdfast, clock: ManualClock) -> None:
    """The reaper never revives a job that somebody wanted to end."""

    @hf_at.task
    async def work() -> None: ...

    job = await work.enqueue()
    await hf_at.store.job_claim(worker="doomed", machine=None, queues=["default"], tasks=["work"], limit=1)
    await hf_at.cancel(job.id, by="ana")
    clock.advance(301)
    report = await hf_at.reap()
    assert (report.cancelled, report.requeued) == ([job.id], [])
    assert (await hf_at.get(job.id)).state is State.CANCELLED
    assert await messages(hf_at, job) == ["Cancelled by ana; its worker did not answer"]
    assert (await drain(hf_at)).jobs == 0


async def test_cancelling_what_is_not_there_says_so(hf: Holdfast) -> None:
    """An unknown id and nonsense answer alike."""
    for job_id in ("01890000-0000-7000-8000-000000000000", "nonsense", ""):
        with pytest.raises(JobNotFound):
            await hf.cancel(job_id)


async def test_check_cancelled_raises_only_in_a_cancelled_run(hf: Holdfast) -> None:
    """An undisturbed run passes every look."""

    @hf.task
    async def look() -> bool:
        try:
            current().check_cancelled()
        except JobCancelled:
            return False
        return not current().cancelled

    job = await look.enqueue()
    await drain(hf)
    assert await job.result(timeout=0) is True
