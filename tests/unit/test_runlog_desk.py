"""Where tasks put their lines: bounded, and exact about what did not fit."""

from __future__ import annotations

import threading

import pytest

from holdfast.runlog import desk as runlog_desk
from holdfast.runlog.desk import Desk, Notice, RunBuffer
from holdfast.runlog.text import weight
from holdfast.settings import load_settings
from tests.support.forks import exit_code, forked
from tests.support.interrupts import MOST, Interrupting, ends


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> RunBuffer:
    """Nobody writes what is put into it, and there is room for about three lines."""
    monkeypatch.setattr(runlog_desk, "BYTES_OF_A_RUN_MAX", 700)
    monkeypatch.setattr(runlog_desk, "BYTES_ALWAYS", 0)
    monkeypatch.setattr(runlog_desk, "THREAD_WAIT_SECONDS", 0.01)
    return RunBuffer("job", "run", load_settings(log_lines_max=1000), Desk(lambda: True, lambda: None))


def say(buffer: RunBuffer, *messages: str) -> None:
    for message in messages:
        buffer.add("info", message, None, None, {})


def make_room(buffer: RunBuffer) -> None:
    with buffer._desk.lock:
        buffer._desk.free(buffer, buffer.bytes_waiting)
        buffer._desk.away = False


def test_what_is_missing_is_said_where_it_is_missing(buffer: RunBuffer) -> None:
    """Between the last line that fitted and the next one that did, each time."""
    say(buffer, "1", "2", "3", "lost", "lost")
    make_room(buffer)
    say(buffer, "4", "5", "6", "lost")
    make_room(buffer)
    say(buffer, "7")
    assert [line.message if isinstance(line, Notice) else int(line.message) for line in buffer.waiting] == [
        1, 2, 3, "2 lines dropped: the database was away.", 4, 5, 6, "1 line dropped: the database was away.", 7,
    ]  # fmt: skip
    assert buffer.unkept == 10


def test_no_line_of_many_threads_is_lost_uncounted(buffer: RunBuffer) -> None:
    """Kept and dropped ones together are all that were said."""
    threads = [threading.Thread(target=say, args=(buffer, *(str(n) for n in range(200)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(buffer.waiting) + buffer.dropped == buffer.unkept == 800


def test_a_run_that_says_little_is_heard_however_much_the_others_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of all together is bounded, but nobody takes the last of it from the others."""
    monkeypatch.setattr(runlog_desk, "BYTES_OF_ALL_MAX", 100_000)
    monkeypatch.setattr(runlog_desk, "THREAD_WAIT_SECONDS", 0.01)
    desk = Desk(lambda: True, lambda: None)
    loud, quiet = (RunBuffer(name, name, load_settings(), desk) for name in ("loud", "quiet"))
    say(loud, *["x" * 1000] * 200)
    say(quiet, "hello")
    assert loud.dropped > 0 and quiet.dropped == 0 and len(quiet.waiting) == 1


def test_a_line_of_holdfast_itself_always_fits(buffer: RunBuffer) -> None:
    """How a run ended is worth more than any of its own lines."""
    say(buffer, *["x"] * 10)
    buffer.note("error", "it failed", None)
    assert buffer.waiting[-1][1] == "it failed"


def test_what_logs_in_the_middle_of_a_log_line_does_not_wait_for_itself() -> None:
    """Each line is kept, whatever line of our code it interrupts, and none is counted twice."""
    buffer = RunBuffer("job", "run", load_settings(), Desk(lambda: True, lambda: None))
    hook = Interrupting(runlog_desk.__file__, lambda: say(buffer, "inner"))
    assert ends(hook, lambda: say(buffer, *map(str, range(20))))
    messages = [line[1] for line in buffer.waiting]
    assert [message for message in messages if message != "inner"] == [str(number) for number in range(20)]
    assert hook.acted == MOST and messages.count("inner") == hook.acted and buffer.unkept == len(messages)
    assert buffer.bytes_waiting == buffer._desk.bytes_waiting == sum(weight(line) for line in buffer.waiting)  # type: ignore[arg-type]


def test_what_logs_while_the_writer_takes_lines_does_not_disturb_it() -> None:
    """Neither a line nor progress that comes in the middle of it is lost."""
    desk = Desk(lambda: True, lambda: None)
    buffer = RunBuffer("job", "run", load_settings(), desk)
    say(buffer, *map(str, range(20)))
    hook = Interrupting(runlog_desk.__file__, lambda: (say(buffer, "inner"), buffer.set_progress(0.5, None)))
    taken = []

    def work() -> None:
        with desk.lock:
            taken.extend(buffer.take(20, 1_000_000)[0])

    assert ends(hook, work)
    assert [line[1] for line in taken] == [str(number) for number in range(20)]
    assert [line[1] for line in buffer.waiting] == ["inner"] * hook.acted and buffer.progress == (0.5, None)


def test_a_full_log_that_is_interrupted_while_it_waits_for_room_goes_on(buffer: RunBuffer) -> None:
    """The lock is free while a thread waits for room, and its own once more after that."""
    hook = Interrupting(runlog_desk.__file__, lambda: say(buffer, "inner"))
    assert ends(hook, lambda: say(buffer, *["x"] * 10))
    kept = sum(1 for line in buffer.waiting if not isinstance(line, Notice))
    missing = sum(line.dropped for line in buffer.waiting if isinstance(line, Notice)) + buffer.dropped
    assert kept + missing == buffer.unkept == 10 + hook.acted


def test_a_log_in_a_forked_process_takes_nothing_and_holds_up_nobody() -> None:
    """Its writer is in the parent, and perhaps a thread of the parent held the lock at the fork."""
    buffer = RunBuffer("job", "run", load_settings(), Desk(lambda: True, lambda: None))
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with buffer._desk.lock:
            held.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(60)
    pid = forked(lambda: (say(buffer, "lost"), buffer.set_progress(0.5, None)))
    go_on.set()
    holder.join()
    assert exit_code(pid) == 0
    assert not buffer.waiting
