"""Failure: when a job is tried again, after how long, and when it is given up."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Abort, Holdfast, RetryLater, Snooze, State, current
from holdfast.clock import ManualClock
from holdfast.errors import JobConflict
from tests.cases.steps import comes_to, drain, lines, messages, working


async def waits(hf: Holdfast, clock: ManualClock, job_id: str) -> float | None:
    """Work, then how many seconds the job now waits for its next attempt; None if it has ended."""
    await drain(hf)
    job = await hf.get(job_id)
    if job.state.ended:
        return None
    assert job.run_at is not None
    return (job.run_at - clock.now()).total_seconds()


async def all_waits(hf: Holdfast, clock: ManualClock, job_id: str) -> list[float]:
    found = []
    while (seconds := await waits(hf, clock, job_id)) is not None:
        found.append(seconds)
        clock.advance(seconds + 0.001)  # a little more: SQLite keeps more digits of a moment than a datetime does
    return found


@pytest.mark.case("queue-3", "recovery-ui-7")
async def test_a_failing_job_is_tried_up_to_its_maximum_and_then_failed(hf_at: Holdfast, clock: ManualClock) -> None:
    """Three attempts by default, then failed for good: nobody enqueues it again by itself."""
    attempts: list[int] = []

    @hf_at.task(backoff=(1,))
    async def always() -> None:
        attempts.append(current().attempt)
        raise ValueError("no")

    job = await always.enqueue()
    assert await all_waits(hf_at, clock, job.id) == [1, 1]
    failed = await hf_at.get(job.id)
    assert (failed.state, failed.attempt, attempts) == (State.FAILED, 3, [1, 2, 3])
    clock.advance(days=1)
    await hf_at.reap()
    await drain(hf_at)
    assert attempts == [1, 2, 3]


async def test_the_jobs_own_maximum_beats_the_tasks(hf: Holdfast) -> None:
    """`options(max_attempts=)` over the decorator over the configuration."""

    @hf.task(max_attempts=5, backoff=(0,))
    async def always() -> None:
        raise ValueError

    job = await always.options(max_attempts=2).enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).attempt == 2


async def test_a_retrying_job_is_shown_as_retrying_with_its_error(hf_at: Holdfast, clock: ManualClock) -> None:
    """Between attempts people see why it waits, and each retry is an event."""

    @hf_at.task(backoff=(60,))
    async def always() -> None:
        raise ValueError("no")

    job = await always.enqueue()
    await drain(hf_at)
    waiting = await hf_at.get(job.id)
    assert (waiting.status, waiting.error_code, waiting.error_message) == ("retrying", "task_error", "ValueError: no")
    assert waiting.run_id != job.run_id
    (event,) = await hf_at.events(job.id)
    assert event.type == "job.retrying" and event.data["delay"] == 60


async def test_a_list_of_waits_is_used_one_by_one_and_the_last_one_again(hf_at: Holdfast, clock: ManualClock) -> None:
    """backoff=(60, 300) with four attempts waits 60, 300, 300."""

    @hf_at.task(backoff=(60, 300), max_attempts=4)
    async def always() -> None:
        raise ValueError

    job = await always.enqueue()
    assert await all_waits(hf_at, clock, job.id) == [60, 300, 300]


async def test_a_function_decides_the_wait(hf_at: Holdfast, clock: ManualClock) -> None:
    """It is asked with the number of the attempt that failed."""

    @hf_at.task(backoff=lambda attempt: attempt * 10.5)
    async def always() -> None:
        raise ValueError

    job = await always.enqueue()
    assert await all_waits(hf_at, clock, job.id) == [10.5, 21]


async def test_a_broken_backoff_function_falls_back_to_the_default(hf_at: Holdfast, clock: ManualClock) -> None:
    """A bug in the function costs nothing but the wait it wanted."""

    @hf_at.task(backoff=lambda attempt: 1 / 0, max_attempts=2)
    async def always() -> None:
        raise ValueError

    job = await always.enqueue()
    (seconds,) = await all_waits(hf_at, clock, job.id)
    assert 0 <= seconds <= 5


async def test_the_default_backoff_is_jittered_between_nothing_and_a_doubling_bound(
    hf_at: Holdfast, clock: ManualClock
) -> None:
    """30 jobs: after attempt n each waits between 0 and 5 · 2^(n-1) s, and they do not all wait alike."""

    @hf_at.task
    async def always() -> None:
        raise ValueError

    jobs = await hf_at.enqueue_many([always.job() for _ in range(30)])
    for bound in (5, 10):
        seconds = [await waits(hf_at, clock, job.id) for job in jobs]
        assert all(wait is not None and 0 <= wait <= bound for wait in seconds)
        assert len(set(seconds)) > 20 and max(wait or 0 for wait in seconds) > bound / 2
        clock.advance(bound)


async def test_retry_later_chooses_its_own_wait_and_counts(hf_at: Holdfast, clock: ManualClock) -> None:
    """RetryLater(120) waits 120 s instead of the task's backoff, costs an attempt, and ends as failed in the end."""

    @hf_at.task(backoff=(1,), max_attempts=2)
    async def limited() -> None:
        raise RetryLater(120, "rate limited", code="rate_limited")

    job = await limited.enqueue()
    assert await all_waits(hf_at, clock, job.id) == [120]
    failed = await hf_at.get(job.id)
    assert (failed.state, failed.error_code, failed.error_message) == (State.FAILED, "rate_limited", "rate limited")


@pytest.mark.case("L17")
async def test_a_snooze_runs_later_and_costs_no_attempt(hf_at: Holdfast, clock: ManualClock) -> None:
    """A job with one attempt snoozes twice and still completes, under a new run id each time."""
    runs: list[tuple[str, int]] = []

    @hf_at.task(max_attempts=1)
    async def wait_for_it() -> str:
        runs.append((current().run_id, current().attempt))
        if len(runs) < 3:
            raise Snooze(30)
        return "there"

    job = await wait_for_it.enqueue()
    assert await all_waits(hf_at, clock, job.id) == [30, 30]
    assert await job.result(timeout=0) == "there"
    assert [attempt for _, attempt in runs] == [1, 1, 1] and len({run_id for run_id, _ in runs}) == 3
    done = await hf_at.get(job.id)
    assert (done.attempt, done.run_no) == (1, 3)
    assert [run.outcome for run in await hf_at.runs(job.id)] == ["completed", "snoozed", "snoozed"]


@pytest.mark.parametrize("delay", ["soon", None, float("nan"), float("inf"), 1e300, 10**400])
@pytest.mark.parametrize("signal", [Snooze, RetryLater])
async def test_a_wait_that_makes_no_sense_does_not_stop_the_worker(hf: Holdfast, signal: type[Snooze], delay: float) -> None:
    """Whatever a task puts into Snooze or RetryLater, its job leaves the worker and the next one runs."""

    @hf.task(max_attempts=2, backoff=(600,))
    async def odd() -> None:
        raise signal(delay)

    @hf.task
    async def good() -> str:
        return "ok"

    job, neighbour = await odd.options(priority=1).enqueue(), await good.enqueue()
    async with working(hf, concurrency=1):
        assert await neighbour.result(timeout=40) == "ok"
        left = await hf.get(job.id)
    assert left.state is not State.RUNNING


@pytest.mark.case("L18")
async def test_a_permanent_error_fails_at_once(hf: Holdfast) -> None:
    """Exceptions named as permanent, and their subclasses, end the job on attempt 1 of 3."""

    class NoAccess(Exception): ...

    class Expired(NoAccess): ...

    @hf.task(permanent=[NoAccess])
    async def fetch() -> None:
        raise Expired("log in again")

    job = await fetch.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.max_attempts) == (State.FAILED, 1, 3)
    assert failed.error_message == "Expired: log in again"


@pytest.mark.case("L18")
async def test_abort_fails_at_once_with_its_own_code(hf: Holdfast) -> None:
    """The reason is the message, the code is the task's."""

    @hf.task
    async def check(code: str | None) -> None:
        raise Abort("Repository not found", code=code) if code else Abort("stop")

    with_code, without = await check.enqueue("repository_gone"), await check.enqueue(None)
    await drain(hf)
    first, second = await hf.get(with_code.id), await hf.get(without.id)
    assert (first.state, first.error_code, first.error_message) == (State.FAILED, "repository_gone", "Repository not found")
    assert (second.state, second.error_code, second.error_message) == (State.FAILED, "aborted", "stop")


@pytest.mark.case("L8")
async def test_attempts_used_up_by_errors_are_named_in_the_log(hf: Holdfast) -> None:
    """The last line says which attempt of how many it was; the lines before say when it goes on."""

    @hf.task(max_attempts=2, backoff=(0,))
    async def always() -> None:
        raise ValueError("no")

    job = await always.enqueue()
    await drain(hf)
    newest, first = await hf.runs(job.id)
    (warned,) = await hf.logs(first.run_id)
    (failed,) = await hf.logs(newest.run_id)
    assert (warned.level, warned.message) == ("warning", "Attempt 1 of 2 failed: ValueError: no - retrying in 0 s")
    assert (failed.level, failed.message) == ("error", "Attempt 2 of 2 failed: ValueError: no")
    assert failed.metadata and "ValueError: no" in failed.metadata["traceback"] and "in always" in failed.metadata["traceback"]


@pytest.mark.case("L8", "recovery-3")
async def test_attempts_used_up_by_crashes_are_named_in_the_message(hf_at: Holdfast, clock: ManualClock) -> None:
    """A job whose worker dies each time ends failed after 3 attempts, with what the user can do in its log."""

    @hf_at.task(backoff=(0,), noun="Extraction")
    async def extract() -> None: ...

    job = await extract.enqueue()
    for _ in range(3):
        claimed = await hf_at.store.job_claim(worker="doomed", machine=None, queues=["default"], tasks=["extract"], limit=1)
        assert len(claimed.jobs) == 1
        clock.advance(301)
        report = await hf_at.reap()
    failed = await hf_at.get(job.id)
    assert report.failed == [job.id] and failed.state is State.FAILED
    assert failed.error_message == "Extraction failed after 3 attempts (machine crash or timeout)"
    assert (await messages(hf_at, job))[0].startswith("Extraction failed after 3 attempts")
    with_retry = await hf_at.retry(job.id)
    assert (with_retry.state, with_retry.attempt, with_retry.error_message) == (State.QUEUED, 0, None)
    await drain(hf_at)
    assert (await hf_at.get(job.id)).attempt == 1


@pytest.mark.case("L19", "recovery-ui-6")
async def test_a_manual_retry_of_a_failed_job_starts_at_attempt_0_and_keeps_its_history(hf: Holdfast) -> None:
    """The new run counts on, the old ones stay readable with their logs."""
    broken = True

    @hf.task(max_attempts=2, backoff=(0,))
    async def mendable() -> str:
        current().log.info(f"run {current().run_no}")
        if broken:
            raise ValueError("broken")
        return "mended"

    job = await mendable.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    broken = False
    again = await hf.retry(job.id, by="ana")
    assert (again.state, again.attempt, again.error_code, again.finished_at) == (State.QUEUED, 0, None, None)
    assert again.run_id != failed.run_id
    await drain(hf)
    assert await job.result(timeout=0) == "mended"
    runs = await hf.runs(job.id)
    assert [(run.run_no, run.attempt, run.outcome) for run in runs] == [
        (3, 1, "completed"),
        (2, 2, "failed"),
        (1, 1, "failed"),
    ]
    assert [(await hf.logs(run.run_id))[0].message for run in runs] == ["run 3", "run 2", "run 1"]
    assert [(event.type, event.actor) for event in await hf.events(job.id)] == [
        ("job.retrying", None),
        ("job.failed", None),
        ("job.retried", "ana"),
    ]


@pytest.mark.case("L19")
async def test_a_manual_retry_of_a_cancelled_job_runs_it(hf: Holdfast) -> None:
    """Also the cancel itself is forgotten: the job is not cancelled again."""

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    await hf.cancel(job.id, by="ana")
    again = await hf.retry(job.id)
    assert (again.state, again.attempt, again.cancel_requested_at) == (State.QUEUED, 0, None)
    await drain(hf)
    assert await job.result(timeout=0) == "done"


@pytest.mark.case("L19")
async def test_a_manual_retry_of_a_queued_running_or_completed_job_is_a_conflict(hf: Holdfast) -> None:
    """Each with its own code; the job is left as it is."""
    go = asyncio.Event()

    @hf.task
    async def work() -> None:
        await go.wait()

    job = await work.enqueue()
    await _retry_conflicts(hf, job.id, "job_queued")
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        await _retry_conflicts(hf, job.id, "job_running")
        go.set()
        await comes_to(hf, job, State.COMPLETED)
    await _retry_conflicts(hf, job.id, "already_completed")


async def _retry_conflicts(hf: Holdfast, job_id: str, code: str) -> None:
    with pytest.raises(JobConflict) as caught:
        await hf.retry(job_id)
    assert caught.value.code == code


@pytest.mark.case("L28")
async def test_nothing_late_from_an_old_run_is_accepted_after_a_snooze(hf_at: Holdfast, clock: ManualClock) -> None:
    """Log, heartbeat, progress, step, finish of the old run id: all refused, the new run is untouched."""
    old: list[str] = []

    @hf_at.task
    async def nap() -> str:
        if not old:
            old.append(current().run_id)
            raise Snooze(10)
        return "ok"

    job = await nap.enqueue()
    await drain(hf_at)
    await _refuses_everything(hf_at, job.id, old[0])
    clock.advance(10)
    await drain(hf_at)
    assert await job.result(timeout=0) == "ok"
    await _refuses_everything(hf_at, job.id, old[0])
    assert (await hf_at.get(job.id)).output == "ok" and await lines(hf_at, job) == []


@pytest.mark.case("L28")
async def test_nothing_late_from_an_old_run_is_accepted_after_the_reaper(hf_at: Holdfast, clock: ManualClock) -> None:
    """The same for a run whose lease ran out and whose job somebody else holds now."""

    @hf_at.task(backoff=(0,))
    async def work() -> None: ...

    job = await work.enqueue()
    asked = {"machine": None, "queues": ["default"], "tasks": ["work"], "limit": 1}
    (first,) = (await hf_at.store.job_claim(worker="frozen", **asked)).jobs
    clock.advance(301)
    assert (await hf_at.reap()).requeued == [job.id]
    (second,) = (await hf_at.store.job_claim(worker="quick", **asked)).jobs
    await _refuses_everything(hf_at, job.id, first.run_id)
    held = await hf_at.get(job.id)
    assert (held.state, held.run_id, held.locked_by, held.progress) == (State.RUNNING, second.run_id, "quick", None)
    assert held.lease_expires_at == clock.now() + timedelta(seconds=300)


async def _refuses_everything(hf: Holdfast, job_id: str, run_id: str) -> None:
    from holdfast.job import LogLine
    from holdfast.store.protocol import Beat, Completion, Departure, Leaving, LogBatch

    store, line = hf.store, LogLine(run_id=run_id, no=99, level="info", message="late")
    assert await store.lease_extend_if_held([Beat(job_id, run_id, 300)]) == []
    assert await store.job_complete_if_leased([Completion(job_id, run_id, '"late"')]) == set()
    assert await store.job_leave_if_leased([Departure(id=job_id, run_id=run_id, how=Leaving.FAIL)]) == {}
    assert not await store.log_append_if_leased([LogBatch(job_id, run_id, [line])])
    assert not await store.progress_set_if_leased(job_id, run_id, 0.9, "late")
    assert not await store.step_save_if_leased(job_id, run_id, "s", "f", "1")
