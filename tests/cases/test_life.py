"""The ordinary life of a job, from enqueue to its end."""

from __future__ import annotations

import asyncio
import contextvars
from datetime import datetime

import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import HoldfastError, JobCancelled, JobConflict, JobFailed, ResultTimeout
from tests.cases.steps import comes_to, drain, ends, lines, messages, working
from tests.support.waiting import until


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
        assert await job.result(timeout=10) == 5
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

    both = threading.Barrier(2, timeout=10)

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


async def test_progress_and_stage_are_visible_while_the_job_runs(hf: Holdfast) -> None:
    """Whoever looks at a running job sees how far it is."""
    go = asyncio.Event()

    @hf.task
    async def work() -> None:
        current().progress(0.25, "first quarter")
        await go.wait()
        current().progress(0.75)

    job = await work.enqueue()
    async with working(hf):

        async def told() -> bool:
            found = await hf.get(job.id)
            return (found.progress, found.stage) == (0.25, "first quarter")

        await until(told)
        go.set()
        done = await ends(hf, job)
    assert (done.progress, done.stage) == (0.75, "first quarter")


@pytest.mark.case("logger-1", "logger-2", "logger-3")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_run_logs_numbered_lines_with_level_step_and_metadata(hf: Holdfast, kind: str) -> None:
    """Async tasks and threads write the same log."""

    def talk() -> None:
        log = current().log
        log.info("one", step="cloning", duration_ms=12.5, files=3)
        log.success("two")
        log.warning("three")
        log.error("four")

    @hf.task
    async def talk_async() -> None:
        talk()

    @hf.task
    def talk_in_thread() -> None:
        talk()

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    await drain(hf)
    found = await lines(hf, job)
    assert [(line.no, line.level, line.message) for line in found] == [
        (1, "info", "one"),
        (2, "success", "two"),
        (3, "warning", "three"),
        (4, "error", "four"),
    ]
    assert (found[0].step, found[0].duration_ms, found[0].metadata) == ("cloning", 12.5, {"files": 3})
    assert found[1].step is None and found[1].metadata is None and found[0].created_at is not None


async def test_lines_can_be_read_while_the_job_runs(hf: Holdfast) -> None:
    """A log is live: its lines are there before the run ends."""
    go = asyncio.Event()

    @hf.task
    async def talk() -> None:
        current().log.info("hello")
        await go.wait()

    job = await talk.enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await until(lambda: messages(hf, job))
        go.set()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_burst_of_20_000_lines_is_kept_whole(hf: Holdfast, kind: str) -> None:
    """A task that logs faster than the database writes loses nothing."""

    def talk() -> None:
        for n in range(20_000):
            current().log.info(f"line {n}")

    @hf.task
    async def talk_async() -> None:
        talk()

    @hf.task
    def talk_in_thread() -> None:
        talk()

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    await drain(hf)
    run_id = (await hf.get(job.id)).run_id
    last = await hf.logs(run_id, after=19_998)
    assert [(line.no, line.message) for line in last] == [(19_999, "line 19998"), (20_000, "line 19999")]
    assert len(await hf.logs(run_id, limit=30_000)) == 20_000


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


# -- the result ----------------------------------------------------------------------------------------------------------


async def test_result_waits_for_the_value(hf: Holdfast) -> None:
    """`await job.result()` started before the job runs returns what the task returned."""

    @hf.task
    async def give() -> dict[str, list[int]]:
        return {"n": [1, 2]}

    job = await give.enqueue()
    waiting = asyncio.create_task(job.result(timeout=10))
    await drain(hf)
    assert await waiting == {"n": [1, 2]}


async def test_result_of_a_failed_job_raises_with_its_code(hf: Holdfast) -> None:
    """The caller learns the job's own code and message."""

    @hf.task(max_attempts=1)
    async def break_() -> None:
        raise KeyError("gone")

    job = await break_.enqueue()
    await drain(hf)
    with pytest.raises(JobFailed, match="KeyError: 'gone'") as caught:
        await job.result(timeout=10)
    assert caught.value.error_code == "task_error"


async def test_result_of_a_cancelled_job_raises(hf: Holdfast) -> None:
    """The message says by whom."""

    @hf.task
    async def never() -> None: ...

    job = await never.enqueue()
    await hf.cancel(job.id, by="ana")
    with pytest.raises(JobCancelled, match="cancelled by ana"):
        await job.result(timeout=10)


async def test_result_gives_up_after_its_timeout(hf: Holdfast) -> None:
    """ResultTimeout is a TimeoutError too, and says in which state the job is."""

    @hf.task
    async def never() -> None: ...

    job = await never.enqueue()
    with pytest.raises(ResultTimeout, match="still queued after 0 s") as caught:
        await job.result(timeout=0)
    assert isinstance(caught.value, TimeoutError)


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
