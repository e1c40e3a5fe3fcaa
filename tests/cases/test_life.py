"""The ordinary life of a job, from enqueue to its end."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import datetime

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import HoldfastError, JobConflict
from tests.cases.steps import comes_to, drain, ends, working


@pytest.mark.case("L1", "queue-1", "queue-2", "life-1")
async def test_a_job_is_queued_then_running_then_completed_with_its_result_and_times(hf: Holdfast) -> None:
    """Each state is visible on the way, and the end has a result, times and no error."""
    go = asyncio.Event()

    @hf.task
    async def add(a: int, b: int) -> int:
        await go.wait()
        return a + b

    job = await add.enqueue(2, b=3)
    assert job.created and job.state is State.QUEUED and (await hf.get(job.id)).status == "queued"
    async with working(hf):
        running = await comes_to(hf, job, State.RUNNING)
        assert running.attempt == 1 and running.finished_at is None
        go.set()
        assert await job.result(timeout=40) == 5
    done = await hf.get(job.id)
    assert (done.state, done.output, done.error_code, done.error_message) == (State.COMPLETED, 5, None, None)
    assert done.created_at and done.started_at and done.finished_at
    assert done.created_at <= done.started_at <= done.finished_at
    assert await hf.events(job.id) == []


@pytest.mark.case("life-1")
async def test_completing_after_a_failed_attempt_clears_the_error(hf: Holdfast) -> None:
    """The error of the first attempt stays in its run, not on the completed job."""

    @hf.task(backoff=(0,))
    async def second_time_lucky() -> None:
        if current().attempt == 1:
            raise ValueError("not yet")

    job = await second_time_lucky.enqueue()
    await drain(hf)
    done = await hf.get(job.id)
    assert (done.state, done.attempt, done.error_code, done.error_message) == (State.COMPLETED, 2, None, None)
    newest, first = await hf.runs(job.id)
    assert (newest.outcome, first.outcome, first.error_message) == ("completed", "failed", "ValueError: not yet")


@pytest.mark.case("life-2", "life-7")
async def test_an_unhandled_error_fails_its_job_and_the_worker_goes_on(hf: Holdfast) -> None:
    """The failed job has code, message and time; its neighbour completes in the same worker."""

    @hf.task(max_attempts=1)
    async def share(by: int) -> float:
        return 1 / by

    bad, good = await share.enqueue(0), await share.enqueue(2)
    end = await drain(hf)
    failed = await hf.get(bad.id)
    assert (failed.state, failed.error_code, failed.error_message) == (
        State.FAILED,
        "task_error",
        "ZeroDivisionError: division by zero",
    )
    assert failed.finished_at is not None
    assert await good.result() == 0.5
    assert (end.reason, end.jobs) == ("idle", 2)


@pytest.mark.case("life-6", "claim-1")
async def test_jobs_run_one_after_another_oldest_first(hf: Holdfast) -> None:
    """With one slot the order of running is the order of enqueueing."""
    ran: list[int] = []

    @hf.task
    async def note(n: int) -> None:
        ran.append(n)

    for n in range(30):
        await note.enqueue(n)
    await drain(hf, concurrency=1)
    assert ran == list(range(30))


async def test_higher_priority_runs_first(hf: Holdfast) -> None:
    """Priority beats age, and the job's own priority beats the task's."""
    ran: list[str] = []

    @hf.task(priority=1)
    async def note(name: str) -> None:
        ran.append(name)

    await hf.enqueue_many([note.options(priority=0).job("low"), note.job("of the task"), note.options(priority=7).job("high")])
    await drain(hf, concurrency=1)
    assert ran == ["high", "of the task", "low"]


async def test_queues_are_served_in_the_order_given_and_others_not_at_all(hf: Holdfast) -> None:
    """A worker takes its first queue first, and leaves queues it was not given."""
    ran: list[str] = []

    @hf.task
    async def note(name: str) -> None:
        ran.append(name)

    await note.options(queue="b").enqueue("b")
    await note.options(queue="a").enqueue("a")
    other = await note.options(queue="c").enqueue("c")
    await drain(hf, queues=["a", "b"], concurrency=1)
    assert ran == ["a", "b"]
    assert (await hf.get(other.id)).state is State.QUEUED


async def test_a_delayed_job_waits_for_its_time(hf_at: Holdfast, clock: ManualClock) -> None:
    """It is shown as scheduled and runs once its time has come, not before."""

    @hf_at.task
    async def later() -> str:
        return "now"

    job = await later.options(delay=60).enqueue()
    await drain(hf_at)
    assert (await hf_at.get(job.id)).status == "scheduled"
    clock.advance(59)
    await drain(hf_at)
    assert (await hf_at.get(job.id)).state is State.QUEUED
    clock.advance(1)
    await drain(hf_at)
    assert await job.result(timeout=0) == "now"


@pytest.mark.case("claim-2")
async def test_a_running_job_tells_who_runs_it_and_since_when(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker, machine, start, lease and attempt are on the job while it runs."""
    monkeypatch.setenv("HOLDFAST_MACHINE_ID", "m-17")
    go = asyncio.Event()

    @hf.task(lease=60, timeout=120)
    async def wait() -> None:
        await go.wait()

    job = await wait.enqueue()
    async with working(hf) as worker:
        running = await comes_to(hf, job, State.RUNNING)
        assert (running.locked_by, running.machine_id, running.attempt, running.run_no) == (worker.id, "m-17", 1, 1)
        assert isinstance(running.started_at, datetime) and running.lease_expires_at and running.deadline
        assert 59 <= (running.lease_expires_at - running.started_at).total_seconds() <= 61
        assert 119 <= (running.deadline - running.started_at).total_seconds() <= 121
        (row,) = await hf.workers()
        assert (row.id, row.machine_id, row.tasks, row.queues) == (worker.id, "m-17", ["wait"], ["default"])
        go.set()
    assert await hf.workers() == []


@pytest.mark.case("claim-3")
async def test_a_worker_with_nothing_to_do_ends_idle(hf: Holdfast) -> None:
    """No job, no error, no waiting."""

    @hf.task
    async def never() -> None: ...

    end = await drain(hf)
    assert (end.reason, end.jobs) == ("idle", 0)


@pytest.mark.case("claim-4", "C26")
async def test_two_workers_never_run_the_same_job(hf: Holdfast) -> None:
    """Two workers share 300 jobs; each runs once."""
    ran: list[int] = []

    @hf.task
    async def note(n: int) -> None:
        ran.append(n)
        await asyncio.sleep(0)

    await hf.enqueue_many([note.job(n) for n in range(300)])
    ends_of_both = await asyncio.gather(drain(hf, concurrency=7), drain(hf, concurrency=7))
    assert sorted(ran) == list(range(300))
    assert sum(end.jobs for end in ends_of_both) == 300


@pytest.mark.case("claim-5")
async def test_ended_and_running_jobs_are_not_claimed_again(hf: Holdfast) -> None:
    """A second worker finds nothing among completed, failed, cancelled and running jobs."""
    ran: list[str] = []
    go = asyncio.Event()

    @hf.task(max_attempts=1)
    async def act(how: str) -> None:
        ran.append(how)
        if how == "fail":
            raise ValueError
        if how == "run":
            await go.wait()

    for how in ("complete", "fail", "cancel"):
        job = await act.enqueue(how)
        if how == "cancel":
            await hf.cancel(job.id)
    await drain(hf)
    running = await act.enqueue("run")
    async with working(hf):
        await comes_to(hf, running, State.RUNNING)
        await drain(hf)
        assert ran == ["complete", "fail", "run"]
        go.set()
        await ends(hf, running)


async def test_sync_tasks_run_in_threads_beside_each_other(hf: Holdfast) -> None:
    """Two plain functions that wait for each other both complete."""
    import threading

    both = threading.Barrier(2, timeout=60)

    @hf.task
    def meet() -> str:
        both.wait()
        return threading.current_thread().name

    jobs = [await meet.enqueue(), await meet.enqueue()]
    await drain(hf, concurrency=2)
    names = {await job.result() for job in jobs}
    assert len(names) == 2 and all(name.startswith("holdfast task") for name in names)


async def test_context_variables_do_not_leak_from_one_job_into_the_next(hf: Holdfast) -> None:
    """What one job binds is gone for the next job in the same slot, in async tasks and in threads."""
    bound: contextvars.ContextVar[str] = contextvars.ContextVar("bound", default="clean")

    @hf.task
    async def bind_async(name: str) -> str:
        before = bound.get()
        bound.set(name)
        await asyncio.sleep(0)
        assert bound.get() == name
        return before

    @hf.task
    def bind_in_thread(name: str) -> str:
        before = bound.get()
        bound.set(name)
        return before

    jobs = [await task.enqueue(str(n)) for n in range(4) for task in (bind_async, bind_in_thread)]
    await drain(hf, concurrency=1)
    assert [await job.result() for job in jobs] == ["clean"] * 8


async def test_current_outside_a_run_says_so() -> None:
    """A clear error, not an odd one."""
    with pytest.raises(HoldfastError, match="only works inside a task"):
        current()


async def test_current_knows_its_run(hf: Holdfast) -> None:
    """Ids, attempt, tenant and a token that stays the same over the attempts of a job."""
    seen: list[tuple[str, str, int, str | None, str]] = []

    @hf.task(backoff=(0,), max_attempts=2)
    async def look() -> None:
        run = current()
        seen.append((run.job_id, run.run_id, run.attempt, run.tenant, run.idempotency_token))
        raise ValueError

    job = await look.options(tenant="acme").enqueue()
    await drain(hf)
    first, second = seen
    assert first[0] == second[0] == job.id and first[4] == second[4]
    assert first[1] != second[1] and (first[2], second[2]) == (1, 2) and first[3] == "acme"


@pytest.mark.case("life-8", "L11")
async def test_cancelling_an_ended_job_is_a_conflict_that_changes_nothing(hf: Holdfast) -> None:
    """Completed, failed and cancelled jobs each answer with their own code."""

    @hf.task(max_attempts=1)
    async def act(fail: bool) -> str:
        if fail:
            raise ValueError
        return "kept"

    completed, failed = await act.enqueue(False), await act.enqueue(True)
    await drain(hf)
    cancelled = await act.enqueue(False)
    await hf.cancel(cancelled.id)
    for job, code in ((completed, "already_completed"), (failed, "already_failed"), (cancelled, "already_cancelled")):
        before = await hf.get(job.id)
        with pytest.raises(JobConflict) as caught:
            await hf.cancel(job.id, by="late")
        assert caught.value.code == code
        assert (await hf.get(job.id)).as_dict() == before.as_dict()
