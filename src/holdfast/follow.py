"""Logs as they are written: one hub per event loop hears of new lines, reads them once, and hands them to every follower.

Hints only shorten the wait: once a second the hub asks the table about every run that is followed. A follower is a cursor, so
that live, resume after a break and polling are one question: which lines come after this number?
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from holdfast.errors import HoldfastError, JobNotFound, RunNotFound, StorageUnavailable
from holdfast.job import LogLine
from holdfast.store.protocol import LogFilter, Store

SWEEP_SECONDS = 1.0
"""How often the table is asked about every followed run: new lines that nobody told of, and whether it has ended."""
LAST_WORDS_SECONDS = 0.2
"""A run that completes its job in its own transaction may still have lines on their way to the table."""
PAUSE_SECONDS = 0.02
"""Between two reads: what is written meanwhile comes together."""
PAGE_LINES = 500
RUNS_PER_QUERY = 50
WINDOW_LINES = 1000
WINDOW_BYTES = 4 * 1024 * 1024
"""Of a run's newest lines in memory, for all its followers together; who is further behind reads the table."""
LINE_OVERHEAD_BYTES = 200
HINT = "log:"


class Watch:
    """One followed run: its newest lines, and whether more may come."""

    def __init__(self, job_id: str, run_id: str) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.followers = 0
        self.last: int | None = None
        """The number of the newest line read; None before the first read."""
        self.floor = 0
        """Every line between this number and `last` is in memory."""
        self.ended_at: float | None = None
        """When it was seen that its job has ended or goes on with another run."""
        self.closed = False
        """No more lines will be written."""
        self.complete = False
        """All of them have been read."""
        self.failure: Exception | None = None
        self.next_runs: list[FollowedRun] | None = None
        self.asking = asyncio.Lock()
        self._lines: list[LogLine] = []
        self._sizes: list[int] = []
        self._news = asyncio.Event()

    def reaches(self, cursor: int) -> bool:
        return self.last is not None and cursor >= self.floor

    def after(self, cursor: int) -> list[LogLine]:
        return self._lines[bisect_right(self._lines, cursor, key=_number) :]

    def begin(self, newest: Sequence[LogLine]) -> None:
        """With its newest lines, as many as the window takes."""
        self.floor = newest[0].no - 1 if len(newest) >= WINDOW_LINES else 0
        self.last = 0
        self.add(newest)
        self.tell()

    def add(self, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        self._lines += lines
        self._sizes += map(_size, lines)
        self.last = lines[-1].no
        surplus = max(0, len(self._lines) - WINDOW_LINES)
        size = sum(self._sizes[surplus:])
        while size > WINDOW_BYTES:
            size -= self._sizes[surplus]
            surplus += 1
        if surplus:
            self.floor = self._lines[surplus - 1].no
            del self._lines[:surplus], self._sizes[:surplus]
        self.tell()

    def end(self, failure: Exception | None = None) -> None:
        self.complete, self.failure = failure is None, failure
        self.tell()

    def tell(self) -> None:
        told, self._news = self._news, asyncio.Event()
        told.set()

    async def news(self) -> None:
        await self._news.wait()


class Hub:
    """Lives from the first follower to the last, with one listening connection."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, Watch] = {}
        self._stirred: set[str] = set()
        self._sweep_at = 0.0
        self._looked_at = 0.0
        self._news = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._lives: set[asyncio.Task[None]] = set()
        """The one above, and those that still hang up."""

    @property
    def alive(self) -> bool:
        return bool(self._lives)

    def join(self, job_id: str, run_id: str) -> Watch:
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = Watch(job_id, run_id)
            self._stir(HINT + run_id)
        watch.followers += 1
        if self._life is None:
            self._sweep_at = 0.0
            self._life = asyncio.create_task(self._live(), name="holdfast log hub")
            self._lives.add(self._life)
            self._life.add_done_callback(self._lives.discard)
        return watch

    def leave(self, watch: Watch) -> None:
        watch.followers -= 1
        if not watch.followers and self._watches.get(watch.run_id) is watch:
            del self._watches[watch.run_id]
            self._news.set()

    async def close(self) -> None:
        """Whoever still follows is told."""
        lives = list(self._lives)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)

    async def lines_after(self, watch: Watch, cursor: int) -> list[LogLine]:
        """Waits for some; none when the run has no more."""
        while True:
            if watch.failure is not None:
                raise watch.failure
            if watch.reaches(cursor):
                if found := watch.after(cursor):
                    return found
                if watch.complete:
                    return []
                await watch.news()
            elif watch.last is None:
                await watch.news()
            else:
                floor = watch.floor
                if found := await page(self._store, watch.run_id, cursor):
                    return found
                cursor = max(cursor, floor)  # what was there is pruned

    async def runs_after(self, watch: Watch, run_no: int) -> list[FollowedRun]:
        """What comes after a run that has ended; asked once for all its followers."""
        async with watch.asking:
            while watch.next_runs is None:
                try:
                    watch.next_runs = await runs_after(self._store, watch.job_id, run_no)
                except StorageUnavailable:
                    await asyncio.sleep(SWEEP_SECONDS)
        return watch.next_runs

    # -- the hub's own life --------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        stop = None
        failure = HoldfastError("The log cannot be followed any more, because its Holdfast object was closed.")
        try:
            stop = await self._store.listen(self._heard, logs=True)
            while self._watches:
                await self._wait()
                await self._look()
        except Exception as error:
            failure = error if isinstance(error, HoldfastError) else HoldfastError(f"The log cannot be read: {error!r}")
        finally:
            self._life = None
            watches, self._watches = self._watches, {}
            for watch in watches.values():
                watch.end(failure)
            if stop is not None:
                await stop()

    def _heard(self, hint: str) -> None:
        """From any thread."""
        if not hint or hint.removeprefix(HINT) in self._watches:
            self._loop.call_soon_threadsafe(self._stir, hint)

    def _stir(self, hint: str) -> None:
        if hint:
            self._stirred.add(hint.removeprefix(HINT))
        else:
            self._sweep_at = 0.0
        self._news.set()

    async def _wait(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._sweep_at):
                await self._news.wait()
        await asyncio.sleep(self._looked_at + PAUSE_SECONDS - self._loop.time())
        self._news.clear()
        self._looked_at = self._loop.time()

    async def _look(self) -> None:
        watches = list(self._watches.values())
        stirred, self._stirred = self._stirred, set()
        sweep = self._loop.time() >= self._sweep_at
        try:
            if sweep:
                self._sweep_at = self._loop.time() + SWEEP_SECONDS
                await self._note_closed(watches)
            await self._read([watch for watch in watches if sweep or watch.run_id in stirred])
        except StorageUnavailable:
            self._sweep_at = self._loop.time() + SWEEP_SECONDS  # the next sweep makes up for it
        for watch in watches:
            if watch.complete and self._watches.get(watch.run_id) is watch:
                del self._watches[watch.run_id]

    async def _note_closed(self, watches: Sequence[Watch]) -> None:
        """Before the lines are read: what a run says last is there once it is no longer open."""
        asked = [watch for watch in watches if not watch.closed]
        if asked:
            still_open = await self._store.run_open([(watch.job_id, watch.run_id) for watch in asked])
            now = self._loop.time()
            for watch in asked:
                if watch.run_id not in still_open:
                    # By time, not by looks: on SQLite every change of the file is a reason to look again.
                    watch.ended_at = now if watch.ended_at is None else watch.ended_at
                    watch.closed = now >= watch.ended_at + LAST_WORDS_SECONDS
                    self._sweep_at = min(self._sweep_at, watch.ended_at + LAST_WORDS_SECONDS)

    async def _read(self, watches: Sequence[Watch]) -> None:
        going_on = [watch for watch in watches if watch.last is not None]
        for watch in watches:
            if watch.last is None:
                watch.begin(await self._store.log_read(watch.run_id, LogFilter(), limit=WINDOW_LINES, newest=True))
                if watch.closed:
                    watch.end()
        for start in range(0, len(going_on), RUNS_PER_QUERY):
            await self._read_new(going_on[start : start + RUNS_PER_QUERY])

    async def _read_new(self, watches: Sequence[Watch]) -> None:
        found: dict[str, list[LogLine]] = {watch.run_id: [] for watch in watches}
        for line in await self._store.log_read_new([(watch.run_id, watch.last or 0) for watch in watches], limit=PAGE_LINES):
            found[line.run_id].append(line)
        for watch in watches:
            lines = found[watch.run_id]
            watch.add(lines)
            if len(lines) == PAGE_LINES:
                self._stir(HINT + watch.run_id)  # there is more
            elif watch.closed:
                watch.end()


class Hubs:
    """One hub per event loop, because its followers wait in theirs."""

    def __init__(self) -> None:
        self._hubs: dict[asyncio.AbstractEventLoop, Hub] = {}

    def here(self, store: Store) -> Hub:
        for loop in [loop for loop in list(self._hubs) if loop.is_closed()]:
            self._hubs.pop(loop, None)
        return self._hubs.setdefault(asyncio.get_running_loop(), Hub(store))

    async def close_here(self) -> None:
        hub = self._hubs.pop(asyncio.get_running_loop(), None)
        if hub is not None:
            await hub.close()


# -- from run to run -------------------------------------------------------------------------------------------------


class FollowedRun(NamedTuple):
    run_id: str
    run_no: int
    open: bool


async def batches(hubs: Hubs, store: Store, job_id: str, run_no: int | None, after: int) -> AsyncGenerator[list[LogLine], None]:
    """The lines of one run after a number; where none is named, of the newest run and of every later one until the job ends."""
    runs = [await first_run(store, job_id, run_no)]
    while runs:
        run, *rest = runs
        hub = hubs.here(store)
        watch = hub.join(job_id, run.run_id) if run.open else None
        try:
            while lines := await (hub.lines_after(watch, after) if watch else page(store, run.run_id, after)):
                after = lines[-1].no
                yield lines
            if not rest and run_no is None:
                rest = await (hub.runs_after(watch, run.run_no) if watch else runs_after(store, job_id, run.run_no))
        finally:
            if watch:
                hub.leave(watch)
        runs, after = rest, 0


async def page(store: Store, run_id: str, after: int) -> list[LogLine]:
    """A database that is away for a while interrupts nobody's reading."""
    while True:
        try:
            return await store.log_read(run_id, LogFilter(after=after), limit=PAGE_LINES)
        except StorageUnavailable:
            await asyncio.sleep(SWEEP_SECONDS)


async def first_run(store: Store, job_id: str, run_no: int | None) -> FollowedRun:
    job = await store.job_get(job_id)
    runs = await store.run_list(job_id)
    for run in runs:
        if run_no in (None, run.run_no):
            return FollowedRun(run.run_id, run.run_no, run.outcome == "running")
    if run_no is None or (run_no == job.run_no + 1 and not job.state.ended):
        return FollowedRun(job.run_id, job.run_no + 1, open=not job.state.ended)
    there = ", ".join(str(run.run_no) for run in reversed(runs)) or "none yet"
    raise RunNotFound(f"Job {job_id} has no run {run_no}; its runs are: {there}.")


async def runs_after(store: Store, job_id: str, run_no: int) -> list[FollowedRun]:
    """Those that were made since, or the one that is waited for; none if the job has ended."""
    try:
        job = await store.job_get(job_id)  # first: a run that begins after this is found by the next question
        runs = await store.run_list(job_id)
    except JobNotFound:
        return []
    later = [FollowedRun(run.run_id, run.run_no, run.outcome == "running") for run in reversed(runs) if run.run_no > run_no]
    if later or job.state.ended:
        return later
    return [FollowedRun(job.run_id, job.run_no + 1, open=True)]


def _number(line: LogLine) -> int:
    return line.no


def _size(line: LogLine) -> int:
    return LINE_OVERHEAD_BYTES + len(line.message) + (len(msgspec.json.encode(line.metadata)) if line.metadata else 0)
