"""What a task says by `logging`, by `print` and through the programs it starts is in its run's log."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import subprocess
import sys
import threading
from types import ModuleType
from typing import Any

import pytest

from holdfast import Holdfast, State, current
from tests.cases.steps import drain, lines, messages

LOGGER = logging.getLogger("app.part")
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2


class ToStderr(logging.Handler):
    """Writes to whatever stands for stderr at that moment, as `logging` does where nobody has set it up."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), file=sys.stderr)


@pytest.fixture(autouse=True)
def at_debug(caplog: pytest.LogCaptureFixture) -> None:
    """As a program that has set up its logging."""
    caplog.set_level(logging.DEBUG)


@pytest.mark.case("logger-3", "logger-4")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_logging_inside_a_task_goes_to_its_log(hf: Holdfast, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """By default, with level, logger and traceback; the program's own handlers get the same records as before."""

    alone = logging.getLogger("app.alone")
    alone.propagate, alone.handlers = False, [logging.NullHandler()]

    def talk() -> None:
        LOGGER.debug("left out")
        LOGGER.info("number %d", 1)
        LOGGER.warning("careful")
        try:
            raise KeyError("gone")
        except KeyError:
            LOGGER.exception("it failed")
        logging.getLogger("holdfast").warning("of Holdfast itself")
        alone.info("does not fit %d", "its format")

    @hf.task
    async def talk_async() -> None:
        talk()

    @hf.task
    def talk_in_thread() -> None:
        talk()

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    LOGGER.info("outside of any task")
    await drain(hf)
    said = await lines(hf, job)
    assert [(line.level, line.message) for line in said] == [
        ("info", "number 1"),
        ("warning", "careful"),
        ("error", "it failed"),
        ("info", "does not fit %d ('its format',)"),
    ]
    assert said[0].metadata == {"logger": "app.part"}
    assert said[2].metadata is not None and said[2].metadata["error"] == "KeyError: 'gone'"
    assert "in talk" in said[2].metadata["traceback"]
    assert {"left out", "number 1", "careful", "it failed", "of Holdfast itself"} <= {
        record.getMessage() for record in caplog.records
    }


@pytest.mark.parametrize(
    ("capture", "expected"), [((), []), (("debug",), ["fine", "number"]), (("logging",), ["number"]), (("print",), [])]
)
async def test_the_option_says_what_is_captured(hf: Holdfast, capture: Any, expected: list[str]) -> None:
    """Nothing, or also what is said for debugging."""

    @hf.task(capture=capture)
    async def talk() -> None:
        LOGGER.debug("fine")
        LOGGER.info("number")

    job = await talk.enqueue()
    await drain(hf)
    assert await messages(hf, job) == expected


async def test_threads_and_tasks_that_a_task_starts_speak_for_it(hf: Holdfast) -> None:
    """Wherever its context goes; two runs at the same time are never mixed up."""
    both = asyncio.Barrier(2)

    @hf.task
    async def talk(name: str) -> None:
        await both.wait()
        await asyncio.to_thread(LOGGER.info, "%s in a thread", name)
        await asyncio.create_task(asyncio.to_thread(LOGGER.info, "%s in a task", name))
        thread = threading.Thread(target=contextvars.copy_context().run, args=(LOGGER.info, "%s by hand", name))
        thread.start()
        thread.join()

    jobs = [await talk.enqueue(name) for name in ("one", "two")]
    await drain(hf, concurrency=2)
    for job, name in zip(jobs, ("one", "two"), strict=True):
        assert await messages(hf, job) == [f"{name} in a thread", f"{name} in a task", f"{name} by hand"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_print_is_captured_where_it_is_asked_for(
    hf: Holdfast, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line, with the stream it came from; what others print goes where it always went."""

    def talk() -> None:
        print("one", 1)
        print("two", file=sys.stderr)
        print("begun", end="")
        LOGGER.warning("logged once")

    @hf.task(capture=("logging", "print"))
    async def talk_async() -> None:
        talk()

    @hf.task(capture=("logging", "print"))
    def talk_in_thread() -> None:
        talk()

    @hf.task
    async def others() -> None:
        print("of somebody else")

    job = await (talk_async if kind == "async" else talk_in_thread).enqueue()
    await others.enqueue()
    under = sys.stdout
    monkeypatch.setattr(LOGGER, "handlers", [ToStderr()])
    await drain(hf)
    said = [(line.message, line.metadata) for line in await lines(hf, job)]
    assert said == [
        ("one 1", {"stream": "stdout"}),
        ("two", {"stream": "stderr"}),
        ("logged once", {"logger": "app.part"}),
        ("begun", {"stream": "stdout"}),
    ]
    assert tuple(capsys.readouterr()) == ("of somebody else\n", "logged once\n") and sys.stdout is under


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_output_of_a_program_is_streamed_into_the_log(hf: Holdfast, kind: str) -> None:
    """Both streams, redacted, without colours; the exit code is what the call returns."""
    script = f"echo one; printf '\\033[31mtwo\\033[0m {TOKEN}\\n' >&2; printf three; exit 7"

    @hf.task
    async def stream_async() -> int:
        process = await asyncio.create_subprocess_exec("sh", "-c", script, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return await current().log.stream(process, step="build")

    @hf.task
    def stream_in_thread() -> int:
        with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            return current().log.stream_sync(process, step="build")

    job = await (stream_async if kind == "async" else stream_in_thread).enqueue()
    await drain(hf)
    assert await job.result(timeout=0) == 7
    said = await lines(hf, job)
    assert {(line.message, line.step, (line.metadata or {})["stream"]) for line in said} == {
        ("one", "build", "stdout"),
        ("two [REDACTED]", "build", "stderr"),
        ("three", "build", "stdout"),
    }


async def test_an_isolated_task_is_captured_as_any_other(isolated: ModuleType) -> None:
    """Its `logging` by default, its output only where it is asked for, its programs by `stream`."""
    logged, streamed = await isolated.log_and_print.enqueue(), await isolated.stream_in_child.enqueue()
    await drain(isolated.hf)
    (line,) = await lines(isolated.hf, logged)
    assert (line.level, line.message, line.metadata) == ("warning", "from logging 1", {"logger": "app.child"})
    assert await streamed.result(timeout=0) == 0 and await messages(isolated.hf, streamed) == ["streamed"]


async def test_the_real_output_of_an_isolated_task_is_kept_to_its_last_word(isolated: ModuleType) -> None:
    """Also of the programs it starts, and what it said before it was killed."""
    job = await isolated.speak_and_die.enqueue()
    await drain(isolated.hf)
    *said, end = await messages(isolated.hf, job)
    assert (await isolated.hf.get(job.id)).error_code == "out_of_memory" and end.startswith("Attempt 1 of 1 failed")
    assert {"printed", "to stderr", "from a program", "\N{REPLACEMENT CHARACTER} no end of line"} <= set(said)


@pytest.mark.case("L24")
async def test_a_task_that_prints_without_end_stays_bounded(isolated: ModuleType) -> None:
    """Twenty megabytes in one line, then more lines than a log holds: the first is cut, the rest counted, the job completes."""
    job = await isolated.print_without_end.enqueue()
    await drain(isolated.hf)
    done = await isolated.hf.get(job.id)
    assert done.state is State.COMPLETED
    first, *_ = await isolated.hf.logs(done.run_id, limit=1)
    reached, dropped = await isolated.hf.logs(done.run_id, newest=True, limit=2)
    assert len(first.message) < 17_000 and first.message.endswith("bytes cut)")
    assert reached.message == "This run has reached 100000 log lines; the rest is dropped."
    assert dropped.message == "100000 lines dropped: the run had reached 100000."


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


async def test_a_record_that_cannot_be_shown_is_still_a_line(hf: Holdfast) -> None:
    """Exceptions and arguments are foreign code: one that raises costs its own words, not the line."""
    alone = logging.getLogger("app.alone")
    alone.propagate, alone.handlers = False, [logging.NullHandler()]

    @hf.task
    async def talk() -> None:
        try:
            raise Unshowable
        except Unshowable:
            alone.exception("it failed")
        alone.warning("got %s", Unshowable())

    job = await talk.enqueue()
    await drain(hf)
    first, second = await lines(hf, job)
    assert first.message == "it failed" and first.metadata is not None
    assert first.metadata["error"] == "Unshowable: (Unshowable that cannot be shown)"
    assert second.message == "got %s (tuple that cannot be shown)"


@pytest.mark.case("D37")
async def test_a_secret_is_not_left_in_half_where_an_error_is_cut(hf: Holdfast) -> None:
    """Of a traceback the end is kept, of a message the beginning; a secret at the cut is redacted as a whole."""
    key_line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"

    @hf.task
    async def talk() -> None:
        body = f"{key_line}\n" * 50
        try:
            raise ValueError(f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n" + "x" * 19_000)
        except ValueError:
            LOGGER.exception("it failed")
        try:
            raise ValueError("x" * 19_960 + " https://app:correct-horse-battery-staple@example.org/")
        except ValueError:
            LOGGER.exception("it failed")

    job = await talk.enqueue()
    await drain(hf)
    first, second = await lines(hf, job)
    assert first.metadata is not None and key_line not in first.metadata["traceback"]
    assert second.metadata is not None and "correct" not in second.metadata["error"]


async def test_whoever_else_wraps_logging_doubles_no_line(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collectors of errors wrap the same method; the next worker of this process must not wrap it once more."""

    @hf.task
    async def talk() -> None:
        LOGGER.info("once")

    await drain(hf)
    inner = logging.Logger.callHandlers
    monkeypatch.setattr(logging.Logger, "callHandlers", lambda logger, record: inner(logger, record))
    job = await talk.enqueue()
    await drain(hf)
    assert await messages(hf, job) == ["once"]


async def test_capturing_changes_nothing_of_a_programs_own_logging(hf: Holdfast) -> None:
    """No handler, no level: `logging.basicConfig` and the warnings of programs without any set-up work as before."""
    root, before = logging.getLogger(), (logging.getLogger().level, list(logging.getLogger().handlers))

    @hf.task
    async def talk() -> None:
        LOGGER.info("hello")

    await talk.enqueue()
    await drain(hf)
    assert (root.level, list(root.handlers)) == before and LOGGER.handlers == [] and LOGGER.propagate


SCRIPT = """
import asyncio, logging, sys
from holdfast import Holdfast

hf = Holdfast(sys.argv[1])

@hf.task
async def talk() -> None:
    logging.getLogger("app").info("hello")
    logging.getLogger("app").warning("careful")
    logging.basicConfig(format="set up: %(message)s", stream=sys.stdout)
    logging.getLogger("app").error("too late?")

async def main() -> None:
    await talk.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    await hf.aclose()

asyncio.run(main())
"""


async def test_a_program_that_never_set_up_logging_is_captured_and_prints_what_it_printed_before(
    hf: Holdfast, database_url: str
) -> None:
    """From INFO on in the log; on its own output warnings as always, and `basicConfig` still works."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, database_url, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = await program.communicate()
    (job,) = await hf.jobs()
    assert await messages(hf, job) == ["hello", "careful", "too late?"]
    assert (out.decode().strip(), err.decode().strip()) == ("set up: too late?", "careful")
