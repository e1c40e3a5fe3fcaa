"""Tasks in a process of their own: real child processes, on both stores."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Holdfast, Job, State
from holdfast.processes import isolated as isolating
from holdfast.run import Interrupt
from tests.cases.steps import comes_to, drain, ends, lines, messages, output_thrown_away, working
from tests.support.waiting import until


def alive(pid: int) -> bool:
    """Whether it still runs; a process that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


async def pid_in(file: Path) -> int:
    return int(await until(lambda: file.exists() and file.read_text()))


async def late_once_there_is(file: Path, hf: Holdfast, job: Job[Any]) -> Job[Any]:
    """The job's end. Its deadline comes when its process says that it is ready, however long that takes to start."""
    async with working(hf) as worker:
        await until(lambda: file.exists() and file.read_text())
        (attempt,) = worker.running.values()
        attempt.interrupt(Interrupt.DEADLINE)
        return await ends(hf, job)


async def test_an_isolated_task_runs_in_another_process_and_returns_its_value(isolated: ModuleType) -> None:
    """Plain functions and async ones."""
    plain, async_ = await isolated.answer.enqueue(7), await isolated.answer_async.enqueue(7)
    await drain(isolated.hf)
    result = await plain.result(timeout=0)
    assert result["value"] == 7 and result["pid"] != os.getpid()
    assert await async_.result(timeout=0) == 8


async def test_log_and_progress_of_an_isolated_task_arrive(isolated: ModuleType) -> None:
    """Its lines are like those of any other task; metadata that is no JSON is shown as text."""
    job = await isolated.talk.enqueue()
    await drain(isolated.hf)
    (line,) = await lines(isolated.hf, job)
    assert (line.no, line.level, line.message, line.step, line.duration_ms) == (1, "info", "hello", "greeting", 1.5)
    assert line.metadata is not None and line.metadata["job"] == job.id and "1" in str(line.metadata["odd"])
    done = await isolated.hf.get(job.id)
    assert (done.progress, done.stage) == (0.5, "talking")


@pytest.mark.case("L24")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("sigkill", "out_of_memory"),
        ("segfault", "process_crashed"),
        ("exit", "process_exited"),
        ("sys.exit", "task_exited"),
        ("error", "task_error"),
    ],
)
async def test_a_task_that_kills_its_own_process_fails_alone(isolated: ModuleType, how: str, code: str) -> None:
    """The job fails with a code that says how its process ended; the next job in the same worker completes."""
    bad, good = await isolated.die.enqueue(how), await isolated.answer.enqueue(1)
    await drain(isolated.hf, concurrency=1)
    failed = await isolated.hf.get(bad.id)
    assert (failed.state, failed.error_code) == (State.FAILED, code)
    assert failed.error_message
    assert (await good.result(timeout=0))["value"] == 1


async def test_an_error_in_the_child_keeps_its_traceback(isolated: ModuleType) -> None:
    """Only the user's own frames: ours tell the reader nothing."""
    job = await isolated.die.enqueue("error")
    await drain(isolated.hf)
    (line,) = await lines(isolated.hf, job)
    assert line.message == "Attempt 1 of 1 failed: ValueError: in the child"
    assert line.metadata is not None
    assert 'in die\n    raise ValueError("in the child")' in line.metadata["traceback"]
    assert "isolated_child" not in line.metadata["traceback"]


async def test_a_snooze_in_the_child_costs_no_attempt(isolated: ModuleType) -> None:
    """What a task raises to steer its job means the same in a process of its own."""
    job = await isolated.nap.enqueue()
    await drain(isolated.hf)
    done = await isolated.hf.get(job.id)
    assert (done.output, done.attempt, done.run_no) == ("rested", 1, 2)


async def test_memory_beyond_the_limit_fails_with_out_of_memory(isolated: ModuleType) -> None:
    """The limit is the task's own; the worker does not feel it."""
    job = await isolated.eat.enqueue()
    await drain(isolated.hf)
    failed = await isolated.hf.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "out_of_memory")


@pytest.mark.case("L24")
async def test_printing_100_megabytes_disturbs_nothing(isolated: ModuleType) -> None:
    """Output is not the way the child answers by, and nobody collects it."""
    job, other = await isolated.print_100_megabytes.enqueue(), await isolated.answer.enqueue(1)
    with output_thrown_away():
        await drain(isolated.hf)
    assert await job.result(timeout=0) == "printed"
    assert (await other.result(timeout=0))["value"] == 1


@pytest.mark.case("L24", "D38")
async def test_a_log_line_of_100_megabytes_is_cut(isolated: ModuleType) -> None:
    """It is kept to the allowed size and says that something is missing; the job completes."""
    job = await isolated.log_100_megabytes.enqueue()
    await drain(isolated.hf)
    assert await job.result(timeout=0) == "logged"
    (line,) = await lines(isolated.hf, job)
    assert len(line.message) < 17_000 and line.message.endswith("bytes cut)")
    assert line.metadata is not None and "cut" in line.metadata


@pytest.mark.case("L24")
async def test_a_result_that_is_no_json_fails_with_a_clear_code(isolated: ModuleType) -> None:
    """Also from a process of its own, and without another try."""
    job = await isolated.return_what_is_no_json.enqueue()
    await drain(isolated.hf)
    failed = await isolated.hf.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "result_not_json")


async def test_an_isolated_task_has_its_deadline(isolated: ModuleType) -> None:
    """By the clock, and its job fails with that code."""
    job = await isolated.hang.enqueue()
    await drain(isolated.hf)
    failed = await isolated.hf.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "deadline_exceeded")
    assert failed.error_message == "took longer than the 3 s it may take"


async def test_past_its_deadline_the_whole_process_group_is_killed(isolated: ModuleType, tmp_path: Path) -> None:
    """Also what the task has started itself."""
    job = await isolated.hang_with_grandchild.enqueue(str(tmp_path / "pid"))
    failed = await late_once_there_is(tmp_path / "pid", isolated.hf, job)
    assert (failed.state, failed.error_code) == (State.FAILED, "deadline_exceeded")
    grandchild = await pid_in(tmp_path / "pid")
    await until(lambda: not alive(grandchild))


async def test_a_task_that_ignores_sigterm_is_killed_all_the_same(isolated: ModuleType, tmp_path: Path) -> None:
    """Politely first, then for certain."""
    job = await isolated.hang_and_ignore_sigterm.enqueue(str(tmp_path / "pid"))
    failed = await late_once_there_is(tmp_path / "pid", isolated.hf, job)
    assert failed.error_code == "deadline_exceeded"
    assert not alive(await pid_in(tmp_path / "pid"))


async def test_a_task_past_its_deadline_may_tidy_up(
    isolated: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process gets a SIGTERM and a moment before it is killed."""
    monkeypatch.setattr(isolating, "TERM_SECONDS", 60.0)
    job = await isolated.tidy_up_on_sigterm.enqueue(str(tmp_path / "note"))
    await late_once_there_is(tmp_path / "note", isolated.hf, job)
    assert (tmp_path / "note").read_text() == "tidied"


async def test_what_a_task_leaves_running_ends_with_it(isolated: ModuleType, tmp_path: Path) -> None:
    """A process that the task forgot does not outlive the run."""
    job = await isolated.leave_grandchild.enqueue(str(tmp_path / "pid"))
    await drain(isolated.hf)
    assert await job.result(timeout=0) == "left"
    grandchild = await pid_in(tmp_path / "pid")
    await until(lambda: not alive(grandchild))


@pytest.mark.case("L10")
async def test_a_cancelled_isolated_task_stops_at_its_next_look_and_its_temp_folder_is_removed(
    isolated: ModuleType, tmp_path: Path
) -> None:
    """The log says who cancelled, and the worker takes the next job."""
    note = tmp_path / "temp folder"
    job = await isolated.wait_for_cancel.enqueue(str(note))
    async with working(isolated.hf, concurrency=1):
        folder = Path(str(await until(lambda: note.exists() and note.read_text())))
        assert (folder / "half-done").exists()
        cancelling = await isolated.hf.cancel(job.id, by="ana")
        assert (cancelling.state, cancelling.status) == (State.RUNNING, "cancelling")
        cancelled = await ends(isolated.hf, job)
        assert (await (await isolated.answer.enqueue(3)).result(timeout=60))["value"] == 3
    assert (cancelled.state, cancelled.cancel_requested_by, cancelled.error_code) == (State.CANCELLED, "ana", None)
    assert await messages(isolated.hf, job) == ["Cancelled by ana"]
    assert not folder.exists()


async def test_a_cancel_that_comes_while_the_process_starts_is_not_lost(isolated: ModuleType, tmp_path: Path) -> None:
    """The child is told as soon as it can be told anything."""
    job = await isolated.wait_for_cancel.enqueue(str(tmp_path / "note"))
    async with working(isolated.hf) as worker:
        attempt = await until(lambda: next(iter(worker.running.values()), None))
        attempt.request_cancel("early bird")
        cancelled = await ends(isolated.hf, job)
    assert cancelled.state is State.CANCELLED


async def test_an_immediate_cancel_ends_the_process_group(isolated: ModuleType, tmp_path: Path) -> None:
    """With cancel="immediate" nobody waits for the task to look."""
    job = await isolated.cancelled_at_once.enqueue(str(tmp_path / "pid"))
    async with working(isolated.hf):
        grandchild = await pid_in(tmp_path / "pid")
        await isolated.hf.cancel(job.id, by="bo")
        cancelled = await ends(isolated.hf, job)
    assert cancelled.state is State.CANCELLED and await messages(isolated.hf, job) == ["Cancelled by bo"]
    await until(lambda: not alive(grandchild))


async def test_a_stopping_worker_ends_its_children_and_gives_their_jobs_back(isolated: ModuleType, tmp_path: Path) -> None:
    """Uncounted: the next worker starts the job at attempt 1 again."""
    job = await isolated.cancelled_at_once.enqueue(str(tmp_path / "pid"))
    async with working(isolated.hf):
        await comes_to(isolated.hf, job, State.RUNNING)
        grandchild = await pid_in(tmp_path / "pid")
    back = await isolated.hf.get(job.id)
    assert (back.state, back.attempt) == (State.QUEUED, 0)
    await until(lambda: not alive(grandchild))


async def test_a_step_is_remembered_over_the_death_of_its_process(isolated: ModuleType, tmp_path: Path) -> None:
    """The second process does not repeat what the first one finished."""
    job = await isolated.two_steps.enqueue(str(tmp_path))
    await drain(isolated.hf)
    assert await job.result(timeout=0) == 21
    assert (tmp_path / "counted").read_text() == "x"
