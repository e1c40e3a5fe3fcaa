"""The hub, against a log in memory: what it asks of a store, what it keeps, and what it forgets."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from holdfast import follow
from holdfast.errors import HoldfastError, JobNotFound, RunNotFound, StorageUnavailable
from holdfast.job import Job, LogLine, Run, State
from holdfast.store.protocol import LogFilter, Wake
from tests.support.waiting import until

JOB = "job"


class Log:
    """As much of a store as the hub asks for: one job whose runs have lines."""

    def __init__(self) -> None:
        self.lines: dict[str, list[LogLine]] = {"run-1": []}
        self.outcomes = {"run-1": "running"}
        self.state = State.RUNNING
        self.asked: list[str] = []
        self.wakes: list[Wake] = []
        self.last_words: list[str] = []
        """Said, with the end of the run, at the moment somebody asks whether it is open."""
        self.away = False
        self.broken = False

    def say(self, *messages: str, run_id: str = "run-1", hint: bool = True, **parts: Any) -> None:
        lines = self.lines[run_id]
        for message in messages:
            lines.append(LogLine(run_id=run_id, no=len(lines) + 1, level="info", message=message, **parts))
        for wake in self.wakes:
            if hint:
                wake(f"log:{run_id}")

    def end(self, outcome: str = "completed", *, state: State = State.COMPLETED) -> None:
        self.outcomes[list(self.outcomes)[-1]] = outcome
        self.state = state
        for wake in self.wakes:
            wake("")

    def start(self, run_id: str) -> None:
        self.lines[run_id], self.outcomes[run_id], self.state = [], "running", State.RUNNING

    def _ask(self, verb: str) -> None:
        self.asked.append(verb)
        if self.away:
            raise StorageUnavailable("The database is away.")
        if self.broken:
            raise ZeroDivisionError

    async def listen(self, wake: Wake, *, logs: bool = False) -> Callable[[], Awaitable[None]]:
        assert logs
        self.wakes.append(wake)

        async def stop() -> None:
            self.wakes.remove(wake)

        return stop

    async def job_get(self, job_id: str) -> Job[Any]:
        self._ask("job_get")
        if job_id != JOB:
            raise JobNotFound(f"There is no job {job_id}.")
        newest = list(self.outcomes)[-1] if self.outcomes else "run-1"
        run_id = newest if self.state is not State.QUEUED else f"run-{len(self.outcomes) + 1}"
        return Job(id=JOB, queue="q", task="t", state=self.state, run_id=run_id, run_no=len(self.outcomes))

    async def run_list(self, job_id: str) -> list[Run]:
        self._ask("run_list")
        runs = [
            Run(run_no=no, run_id=run_id, attempt=no, outcome=how) for no, (run_id, how) in enumerate(self.outcomes.items(), 1)
        ]
        return runs[::-1]

    async def run_open(self, runs: Sequence[tuple[str, str]]) -> set[str]:
        self._ask("run_open")
        if self.last_words:
            self.say(*self.last_words, hint=False)
            self.last_words = []
            self.end()
        waiting = f"run-{len(self.outcomes) + 1}" if self.state is State.QUEUED else None
        return {run_id for _, run_id in runs if self.outcomes.get(run_id) == "running" or run_id == waiting}

    async def log_read(self, run_id: str, where: LogFilter, *, limit: int, newest: bool = False) -> list[LogLine]:
        self._ask("log_read")
        found = [line for line in self.lines.get(run_id, []) if line.no > where.after]
        return found[-limit:] if newest else found[:limit]

    async def log_read_new(self, cursors: Sequence[tuple[str, int]], *, limit: int) -> list[LogLine]:
        self._ask("log_read_new")
        return [line for run_id, after in cursors for line in self.lines.get(run_id, [])[after : after + limit]]


class Reader:
    """Follows in a task of its own, and notes what it sees."""

    def __init__(self, hubs: follow.Hubs, log: Log, *, run_no: int | None = None, after: int = 0) -> None:
        self.seen: list[str] = []
        self.going_on = asyncio.Event()
        self.going_on.set()
        self.task = asyncio.create_task(self._read(follow.batches(hubs, log, JOB, run_no, after)))  # type: ignore[arg-type]

    async def _read(self, batches: AsyncIterator[list[LogLine]]) -> None:
        async for lines in batches:
            self.seen += [line.message for line in lines]
            await self.going_on.wait()

    async def ends(self) -> list[str]:
        await asyncio.wait_for(self.task, 40)
        return self.seen


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def hubs() -> AsyncIterator[follow.Hubs]:
    made = follow.Hubs()
    yield made
    await made.close_here()


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SWEEP_SECONDS", 3600.0)


def numbers(first: int, last: int) -> list[str]:
    return [str(no) for no in range(first, last + 1)]


async def test_a_thousand_followers_cost_one_query_per_batch(log: Log, hubs: follow.Hubs, no_sweeps: None) -> None:
    """The lines of one run are read once, whoever follows."""
    readers = [Reader(hubs, log) for _ in range(1000)]
    await until(lambda: log.wakes and log.asked.count("log_read"))
    log.asked.clear()
    for batch in range(5):
        log.say(*numbers(10 * batch + 1, 10 * batch + 10))
        await until(lambda: all(len(reader.seen) == 10 * (batch + 1) for reader in readers))  # noqa: B023
    assert log.asked == ["log_read_new"] * 5
    log.asked.clear()
    log.end()
    assert all([await reader.ends() == numbers(1, 50) for reader in readers])
    assert len(log.asked) <= 6, log.asked


async def test_one_who_joins_later_reads_what_the_others_have_read(log: Log, hubs: follow.Hubs, no_sweeps: None) -> None:
    """The newest lines are in memory; who starts in the middle costs no read of the log."""
    log.say(*numbers(1, 30))
    first = Reader(hubs, log)
    await until(lambda: len(first.seen) == 30)
    log.asked.clear()
    second = Reader(hubs, log, after=20)
    await until(lambda: len(second.seen) == 10)
    assert log.asked == ["job_get", "run_list"]
    log.end()
    assert await second.ends() == numbers(21, 30)


async def test_one_who_is_far_behind_pages_from_the_table(log: Log, hubs: follow.Hubs) -> None:
    """Only the newest lines are kept in memory; a follower from the start misses none of the others."""
    log.say(*numbers(1, 3 * follow.WINDOW_LINES))
    reader = Reader(hubs, log)
    await until(lambda: reader.seen)
    log.say("last")
    log.end()
    assert await reader.ends() == [*numbers(1, 3 * follow.WINDOW_LINES), "last"]


async def test_a_slow_follower_holds_up_nobody_and_misses_nothing(log: Log, hubs: follow.Hubs) -> None:
    """It is a cursor: nothing is queued for it, and it goes on where it stood."""
    slow, quick = Reader(hubs, log), Reader(hubs, log)
    slow.going_on.clear()
    log.say("first")
    await until(lambda: slow.seen and quick.seen)
    for batch in range(8):
        log.say(*numbers(400 * batch + 1, 400 * batch + 400))
        await until(lambda: len(quick.seen) == 400 * (batch + 1) + 1)  # noqa: B023
    assert slow.seen == ["first"]
    slow.going_on.set()
    log.end()
    assert await slow.ends() == await quick.ends() == ["first", *numbers(1, 3200)]


async def test_a_window_is_bounded_in_lines_and_in_bytes() -> None:
    """However fat the lines are, the newest stay within the budget, and nothing is claimed to be there that is not."""
    fat = follow.Watch(JOB, "run-1")
    fat.begin([])
    for no in range(1, 101):
        fat.add([LogLine(run_id="run-1", no=no, level="info", message="", metadata={"text": "x" * 100_000})])
    assert (fat.last, len(fat.after(fat.floor))) == (100, 100 - fat.floor)
    assert 30 <= 100 - fat.floor <= follow.WINDOW_BYTES / 100_000
    thin = follow.Watch(JOB, "run-1")
    thin.begin([LogLine(run_id="run-1", no=no, level="info", message="") for no in range(1, 501)])
    thin.add([LogLine(run_id="run-1", no=no, level="info", message="") for no in range(501, 1501)])
    assert (thin.floor, len(thin.after(0))) == (500, follow.WINDOW_LINES)


async def test_a_burst_beyond_a_page_comes_whole_at_once(log: Log, hubs: follow.Hubs, no_sweeps: None) -> None:
    """One hint may stand for many lines; the rest does not wait for the next."""
    reader = Reader(hubs, log)
    await until(lambda: log.wakes and "log_read" in log.asked)
    log.say(*numbers(1, 3 * follow.PAGE_LINES + 1))
    await until(lambda: len(reader.seen) == 3 * follow.PAGE_LINES + 1)
    assert reader.seen == numbers(1, 3 * follow.PAGE_LINES + 1)


async def test_lines_that_nobody_told_of_are_found(log: Log, hubs: follow.Hubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost hint costs time, never a line."""
    monkeypatch.setattr(follow, "SWEEP_SECONDS", 0.05)
    reader = Reader(hubs, log)
    await until(lambda: log.wakes)
    log.say("quiet", hint=False)
    await until(lambda: reader.seen == ["quiet"])


async def test_what_a_run_says_last_is_not_missed(log: Log, hubs: follow.Hubs) -> None:
    """Whether a run goes on is asked before its lines are read, so that its end cannot overtake its last line."""
    reader = Reader(hubs, log)
    log.say("first")
    await until(lambda: reader.seen)
    log.last_words = ["last"]
    assert await reader.ends() == ["first", "last"]


async def test_last_words_are_waited_for_however_often_something_is_heard(
    log: Log, hubs: follow.Hubs, no_sweeps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was completed in its run's own transaction: each hint is a look, and no number of looks ends the run early."""
    monkeypatch.setattr(follow, "LAST_WORDS_SECONDS", 600.0)
    reader = Reader(hubs, log)
    log.say("first")
    await until(lambda: reader.seen)
    log.asked.clear()

    def looked_often() -> bool:
        log.end()
        return log.asked.count("run_open") > 3

    await until(looked_often)
    log.say("last", hint=False)
    monkeypatch.setattr(follow, "LAST_WORDS_SECONDS", 0.0)
    log.end()
    assert await reader.ends() == ["first", "last"]


async def test_a_database_that_was_away_loses_and_doubles_nothing(
    log: Log, hubs: follow.Hubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followers wait, and go on where they stood."""
    monkeypatch.setattr(follow, "SWEEP_SECONDS", 0.05)
    log.say(*numbers(1, 5))
    reader = Reader(hubs, log)
    await until(lambda: len(reader.seen) == 5)
    log.away = True
    log.say(*numbers(6, 10))
    log.asked.clear()
    await until(lambda: len(log.asked) > 3)
    log.away = False
    log.end()
    assert await reader.ends() == numbers(1, 10)


async def test_an_unexpected_error_reaches_every_follower(log: Log, hubs: follow.Hubs) -> None:
    """Nobody waits for a hub that cannot go on; the next follower gets a new one."""
    readers = [Reader(hubs, log) for _ in range(3)]
    await until(lambda: log.wakes)
    log.broken = True
    log.say("unread")
    for reader in readers:
        with pytest.raises(HoldfastError, match="ZeroDivisionError"):
            await reader.ends()
    log.broken = False
    log.end()
    assert await Reader(hubs, log).ends() == ["unread"]


async def test_closing_tells_those_who_follow(log: Log, hubs: follow.Hubs) -> None:
    """A follower of an application that is closed does not hang, nor believe that the run has ended."""
    reader = Reader(hubs, log)
    await until(lambda: log.wakes)
    await hubs.close_here()
    with pytest.raises(HoldfastError, match="closed"):
        await reader.ends()
    assert log.wakes == []


@pytest.mark.parametrize("how", ["cancel", "break", "close"])
async def test_the_last_follower_turns_off_the_light(log: Log, hubs: follow.Hubs, how: str) -> None:
    """However it leaves, nobody listens any more and no task is left."""
    log.say("one")
    if how == "cancel":
        reader = Reader(hubs, log)
        await until(lambda: reader.seen)
        reader.task.cancel()
    elif how == "break":
        async for _ in follow.batches(hubs, log, JOB, None, 0):  # type: ignore[arg-type]
            break
        gc.collect()
    else:
        async with aclosing(follow.batches(hubs, log, JOB, None, 0)) as batches:  # type: ignore[arg-type]
            await anext(batches)
    await until(lambda: not log.wakes and not hubs.here(log).alive)  # type: ignore[arg-type]
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert "holdfast log hub" not in names


async def test_a_job_is_followed_over_its_attempts(log: Log, hubs: follow.Hubs) -> None:
    """When a run ends and the job does not, the next one is waited for, also where two came at once."""
    log.say("first")
    reader, one_run = Reader(hubs, log), Reader(hubs, log, run_no=1)
    await until(lambda: reader.seen and one_run.seen)
    log.end("failed", state=State.QUEUED)
    assert await one_run.ends() == ["first"]
    log.start("run-2")
    log.say("second", run_id="run-2")
    await until(lambda: reader.seen == ["first", "second"])
    log.outcomes["run-2"] = "lost"
    log.start("run-3")
    log.say("third", run_id="run-3")
    log.outcomes["run-3"] = "snoozed"
    log.start("run-4")
    log.say("fourth", run_id="run-4")
    log.end()
    assert await reader.ends() == ["first", "second", "third", "fourth"]


async def test_a_job_that_waits_for_its_first_run_is_waited_for(log: Log, hubs: follow.Hubs) -> None:
    """Its run id is known before it runs."""
    log.lines, log.outcomes, log.state = {}, {}, State.QUEUED
    reader = Reader(hubs, log)
    await until(lambda: log.wakes)
    log.start("run-1")
    log.say("hello")
    await until(lambda: reader.seen)
    log.end()
    assert await reader.ends() == ["hello"]


async def test_a_run_that_has_ended_needs_no_hub(log: Log, hubs: follow.Hubs) -> None:
    """It is read by pages from where the reader stood, without a listening connection."""
    log.say(*numbers(1, 1200))
    log.end()
    assert await Reader(hubs, log, after=100).ends() == numbers(101, 1200)
    assert not hubs.here(log).alive  # type: ignore[arg-type]


async def test_what_is_not_there_cannot_be_followed(log: Log, hubs: follow.Hubs) -> None:
    """Neither a job nor a run; the message names the runs there are."""
    with pytest.raises(JobNotFound):
        await anext(follow.batches(hubs, log, "other", None, 0))  # type: ignore[arg-type]
    log.end()
    for run_no in (0, 2):
        with pytest.raises(RunNotFound, match=r"has no run \d; its runs are: 1"):
            await anext(follow.batches(hubs, log, JOB, run_no, 0))  # type: ignore[arg-type]
