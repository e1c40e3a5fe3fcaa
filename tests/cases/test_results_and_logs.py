"""What comes out of a job: its result, its log, its progress."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Holdfast, State, current
from holdfast.errors import JobCancelled, JobFailed, ResultTimeout
from tests.cases.steps import comes_to, drain, ends, lines, messages, working
from tests.support.waiting import until


async def test_result_waits_for_the_value(hf: Holdfast) -> None:
    """`await job.result()` started before the job runs returns what the task returned."""

    @hf.task
    async def give() -> dict[str, list[int]]:
        return {"n": [1, 2]}

    job = await give.enqueue()
    waiting = asyncio.create_task(job.result(timeout=40))
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
        await job.result(timeout=40)
    assert caught.value.error_code == "task_error"


async def test_result_of_a_cancelled_job_raises(hf: Holdfast) -> None:
    """The message says by whom."""

    @hf.task
    async def never() -> None: ...

    job = await never.enqueue()
    await hf.cancel(job.id, by="ana")
    with pytest.raises(JobCancelled, match="cancelled by ana"):
        await job.result(timeout=40)


async def test_result_gives_up_after_its_timeout(hf: Holdfast) -> None:
    """ResultTimeout is a TimeoutError too, and says in which state the job is."""

    @hf.task
    async def never() -> None: ...

    job = await never.enqueue()
    with pytest.raises(ResultTimeout, match="still queued after 0 s") as caught:
        await job.result(timeout=0)
    assert isinstance(caught.value, TimeoutError)


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


async def test_numbers_beyond_64_bits_do_not_cost_a_line(hf: Holdfast) -> None:
    """In metadata they are kept; as a duration they are no duration."""

    @hf.task
    async def count() -> None:
        current().log.info("grains", duration_ms=10**20, on_the_board=10**20)

    job = await count.enqueue()
    await drain(hf)
    (line,) = [line for line in await hf.logs((await hf.get(job.id)).run_id) if line.message == "grains"]
    assert line.duration_ms is None and line.metadata == {"on_the_board": 10**20}
