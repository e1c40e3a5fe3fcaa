"""Tasks that misbehave: only their own job suffers, with a clear code, and the worker and the other jobs go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Abort, Holdfast, Job, RetryLater, Snooze, State, current
from tests.cases.steps import drain, lines, output_thrown_away, working
from tests.support.waiting import until

Act = Callable[[], Any]


async def fails_alone(hf: Holdfast, act: Act, kind: str, **options: Any) -> Job[Any]:
    """Run the act as a task between two good ones in one slot; the act's job once it has left the worker."""

    async def act_async() -> Any:
        return act()

    def act_in_thread() -> Any:
        return act()

    bad = hf.task(name="bad", max_attempts=1, **options)(act_async if kind == "async" else act_in_thread)

    @hf.task
    async def good(n: int) -> int:
        await asyncio.sleep(0)
        return n

    before, job, after = await good.enqueue(1), await bad.enqueue(), await good.enqueue(2)
    end = await drain(hf, concurrency=1)
    assert (await before.result(timeout=0), await after.result(timeout=0)) == (1, 2)
    assert (end.reason, end.jobs) == ("idle", 3)
    left: Job[Any] = await hf.get(job.id)
    return left


def raising(error: BaseException | type[BaseException]) -> Act:
    def act() -> None:
        raise error

    return act


class Odd(BaseException):
    """Not even an Exception."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Deadly(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


ERRORS = {
    "BaseException": (Odd("odd"), "task_interrupted", "Odd: odd"),
    "KeyboardInterrupt": (KeyboardInterrupt(), "task_interrupted", "KeyboardInterrupt"),
    "GeneratorExit": (GeneratorExit(), "task_interrupted", "GeneratorExit"),
    "CancelledError": (asyncio.CancelledError(), "task_interrupted", "CancelledError"),
    "sys.exit": (SystemExit(3), "task_exited", "SystemExit: 3"),
    "MemoryError": (MemoryError(), "out_of_memory", "MemoryError"),
    "RecursionError": (RecursionError("deep"), "task_error", "RecursionError: deep"),
    "StopAsyncIteration": (StopAsyncIteration("end"), "task_error", "StopAsyncIteration: end"),
    "no message": (ValueError(), "task_error", "ValueError"),
    "many lines": (ValueError("\n\n  first\nsecond"), "task_error", "ValueError:   first"),
    "a message that raises": (Unspeakable(), "task_error", "Unspeakable: (Unspeakable that cannot be shown)"),
    "a message that exits": (Deadly(), "task_error", "Deadly: (Deadly that cannot be shown)"),
    "a lone surrogate": (ValueError("\ud800"), "task_error", "ValueError: ?"),
    "NUL": (ValueError("a\0b"), "task_error", "ValueError: a\N{REPLACEMENT CHARACTER}b"),
    "terminal codes": (ValueError("\x1b[31mred"), "task_error", "ValueError: \N{REPLACEMENT CHARACTER}[31mred"),
    "a code that is no text": (Abort("stop", code=5), "5", "stop"),  # type: ignore[arg-type]
    "a code with NUL": (Abort("stop", code="a\0b"), "a\N{REPLACEMENT CHARACTER}b", "stop"),
    "a group": (ExceptionGroup("several", [ValueError("one")]), "task_error", "ExceptionGroup: several (1 sub-exception)"),
}


@pytest.mark.case("L24")
@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("what", ERRORS)
async def test_whatever_a_task_raises_only_its_own_job_fails(hf: Holdfast, what: str, kind: str) -> None:
    """The code says what kind of end it was, the message is one line."""
    error, code, message = ERRORS[what]
    failed = await fails_alone(hf, raising(error), kind)
    assert (failed.state, failed.error_code, failed.error_message) == (State.FAILED, code, message)


@pytest.mark.case("L24")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_stop_iteration_fails_its_job(hf: Holdfast, kind: str) -> None:
    """Python forbids it to leave a coroutine, which must not confuse ours."""
    failed = await fails_alone(hf, raising(StopIteration("end")), kind)
    assert (failed.state, failed.error_code) == (State.FAILED, "task_error")
    assert "StopIteration" in str(failed.error_message)


@pytest.mark.case("L24")
async def test_sys_exit_called_for_real_fails_its_job(hf: Holdfast) -> None:
    """The worker's process does not end."""
    failed = await fails_alone(hf, lambda: sys.exit("bye"), "thread")
    assert (failed.error_code, failed.error_message) == ("task_exited", "SystemExit: bye")


@pytest.mark.case("L24")
async def test_an_error_message_of_50_megabytes_is_cut(hf: Holdfast) -> None:
    """People read one line; nobody stores fifty megabytes."""
    failed = await fails_alone(hf, raising(ValueError("x" * 50 * 1024 * 1024)), "async")
    assert str(failed.error_message).startswith("ValueError: xxx") and len(str(failed.error_message)) == 2000
    (line,) = await lines(hf, failed)
    assert line.metadata is not None and len(line.metadata["traceback"]) <= 20_000


UNSTORABLE: dict[str, Any] = {
    "an object": object(),
    "NaN": {"n": float("nan")},
    "infinity": [float("inf")],
    "NUL": "a\0b",
    "a lone surrogate": "\ud800",
    "a function": print,
    "bytes in a key": {(1, 2): 3},
}


@pytest.mark.case("L24")
@pytest.mark.parametrize("what", UNSTORABLE)
async def test_a_result_that_is_no_json_fails_with_a_clear_code(hf: Holdfast, what: str) -> None:
    """At once: the work is done, and doing it again would not help."""
    failed = await fails_alone(hf, lambda: UNSTORABLE[what], "async")
    assert (failed.state, failed.error_code, failed.output) == (State.FAILED, "result_not_json", None)
    assert str(failed.error_message).startswith("the result ")


@pytest.mark.case("L24")
async def test_a_result_that_contains_itself_fails_with_a_clear_code(hf: Holdfast) -> None:
    """It has no end to be written down."""
    endless: list[Any] = []
    endless.append(endless)
    failed = await fails_alone(hf, lambda: endless, "async")
    assert failed.error_code == "result_not_json"


async def test_a_result_over_a_megabyte_fails_with_what_to_do(hf: Holdfast) -> None:
    """The message names both sizes."""
    failed = await fails_alone(hf, lambda: "x" * 1_048_577, "async")
    assert failed.error_code == "result_too_large"
    assert failed.error_message == "the result takes 1048579 bytes and 1048576 are allowed; store it and return its key"


@pytest.mark.case("L24")
async def test_a_thread_that_prints_100_megabytes_disturbs_nothing(hf: Holdfast) -> None:
    """Output is the process's own affair."""

    def shout() -> str:
        line = "x" * 1024 * 1024
        for _ in range(100):
            print(line, file=sys.__stdout__)
        return "printed"

    with output_thrown_away():
        done = await fails_alone(hf, shout, "thread")
    assert done.output == "printed"


@pytest.mark.case("L24")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_whatever_a_task_logs_the_job_completes_and_the_other_lines_are_kept(hf: Holdfast, kind: str) -> None:
    """A line that no database could hold is shown as well as possible, and the lines behind it are not lost."""

    def talk() -> str:
        log = current().log
        log.info("\ud800 a\0b", step="a\0b\ud800" * 100, duration_ms=float("nan"), **{"\0": "\0", "\ud800": object()})
        log.info(Unspeakable(), step=Deadly(), duration_ms="soon", odd=Unspeakable())  # type: ignore[arg-type]
        log.info("x" * 1_000_000, large="y" * 1_000_000)
        current().progress(0.5, "a\0b\ud800")
        log.info("still here")
        return "done"

    done = await fails_alone(hf, talk, kind)
    assert (done.output, done.progress, done.stage) == ("done", 0.5, "a\N{REPLACEMENT CHARACTER}b?")
    found = await lines(hf, done)
    assert [line.no for line in found] == [1, 2, 3, 4] and found[3].message == "still here"
    assert found[0].message == "? a\N{REPLACEMENT CHARACTER}b" and found[0].duration_ms is None
    assert found[2].message.endswith("(983616 bytes cut)") and found[2].metadata is not None and "cut" in found[2].metadata


@pytest.mark.case("L24")
async def test_a_task_that_cancels_its_own_slot_pays_for_it(hf: Holdfast) -> None:
    """It counts as a failed attempt: otherwise it would be run again for ever."""

    @hf.task(max_attempts=2, backoff=(0,))
    async def cut_off_ones_branch() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @hf.task
    async def own_timeout() -> str:
        async with asyncio.timeout(40):
            await asyncio.sleep(0)
        return "undisturbed"

    job, after = await cut_off_ones_branch.enqueue(), await own_timeout.enqueue()
    await drain(hf, concurrency=1)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.error_code) == (State.FAILED, 2, "task_interrupted")
    assert await after.result(timeout=0) == "undisturbed"


@pytest.mark.case("L24")
async def test_a_backoff_function_that_exits_costs_nothing_but_the_wait_it_wanted(hf: Holdfast) -> None:
    """Not even SystemExit out of a backoff function takes the job or the worker down."""

    def backoff(attempt: int) -> float:
        sys.exit(1)

    failed = await fails_alone(hf, raising(ValueError("no")), "async", backoff=backoff)
    assert (failed.state, failed.error_message) == (State.FAILED, "ValueError: no")


@pytest.mark.case("L24")
async def test_one_bad_end_among_many_does_not_hold_up_the_others(hf: Holdfast) -> None:
    """100 jobs end at the same moment in every way there is; each ends as it should."""
    gate = asyncio.Event()
    here = 0

    @hf.task(max_attempts=1)
    async def end(n: int) -> int:
        nonlocal here
        here += 1
        await gate.wait()
        match n % 5:
            case 0:
                raise ValueError("\ud800\0")
            case 1:
                raise Snooze(1e308)
            case 2:
                raise RetryLater("?")  # type: ignore[arg-type]
            case 3:
                raise Abort("\0", code="\ud800" * 1000)
        return n

    jobs = await hf.enqueue_many([end.job(n) for n in range(100)])
    async with working(hf, concurrency=100):
        await until(lambda: here == 100)
        gate.set()

        async def all_ended() -> bool:
            counts = await hf.store.job_counts()
            return counts.get("failed") == 80 and counts.get("completed") == 20

        await until(all_ended)
    assert [await job.result(timeout=0) for job in jobs[4::5]] == list(range(4, 100, 5))


async def test_an_invalid_enqueue_inside_a_task_is_an_ordinary_error(hf: Holdfast) -> None:
    """`args_invalid` without a burnt attempt is for the job's own arguments, not for those of another one."""

    @hf.task
    async def other(n: int) -> None: ...

    @hf.task(max_attempts=2, backoff=(0,))
    async def careless() -> None:
        await other.enqueue("many")  # type: ignore[arg-type]

    job = await careless.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.error_code) == (State.FAILED, 2, "args_invalid")
    assert str(failed.error_message).startswith("InvalidArguments: other: argument n")


async def test_what_a_task_leaves_running_never_logs_into_the_next_job(hf: Holdfast) -> None:
    """A forgotten coroutine keeps the run it belongs to, whatever runs in its slot by then."""
    left: list[asyncio.Future[None]] = []
    go = asyncio.Event()

    @hf.task
    async def leave_something_running() -> None:
        async def later() -> None:
            await go.wait()
            current().log.info("late")

        left.append(asyncio.ensure_future(later()))

    @hf.task
    async def quiet() -> None:
        go.set()
        await left[0]

    await leave_something_running.enqueue()
    job = await quiet.enqueue()
    await drain(hf, concurrency=1)
    assert await lines(hf, job) == []
