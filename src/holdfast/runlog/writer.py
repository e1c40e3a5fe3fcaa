"""The thread that writes the logs of a worker: the lines of all runs in few statements, the next ones prepared meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from holdfast.errors import StorageError, StorageUnavailable
from holdfast.job import LogLine, State
from holdfast.runlog.desk import REFUSED, Desk, Notice, RunBuffer
from holdfast.runlog.text import Said
from holdfast.store.protocol import LogBatch, Store
from holdfast.thread_starts import start

log = logging.getLogger("holdfast")

FLUSH_SECONDS = 0.05
"""How long the first line waits for others."""
PROGRESS_SECONDS = 0.2
LINES_PER_BATCH = 4000
BYTES_PER_BATCH = 4 * 1024 * 1024
AWAY_PATIENCE_SECONDS = 2.0
"""Runs that end while the database is away wait for it so long, counted from its going away."""
RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 2.0
REFUSALS_MAX = 40
"""How many statements may be refused in search of the lines that the database does not like."""


class Part:
    """Lines of one run on their way."""

    def __init__(self, buffer: RunBuffer, taken: list[Said | Notice], size: int, progress: bool) -> None:
        self.buffer = buffer
        self.taken = taken
        self.size = size
        self.progress = buffer.progress if progress else None
        self.lines: list[LogLine] = []


class LogWriter:
    def __init__(self, store: Store, desk: Desk) -> None:
        self._store = store
        self._desk = desk
        self._loop = asyncio.new_event_loop()
        self._work = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping = False
        self._away_since: float | None = None
        self._writing_apart: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._main, name="holdfast log writer", daemon=True)

    # -- from any thread

    def start(self) -> None:
        start(self._thread)

    def wake(self) -> None:
        self._set(self._work)

    def hurry(self) -> None:
        self._set(self._hurry)

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        self.hurry()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _set(self, event: asyncio.Event) -> None:
        with contextlib.suppress(RuntimeError):  # a thread that outlived its worker still talks
            self._loop.call_soon_threadsafe(event.set)

    # -- in its own thread

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._write_until_stopped())

    async def _write_until_stopped(self) -> None:
        while not self._stopping:
            await self._work.wait()
            await self._soon(self._hurry, FLUSH_SECONDS)
            try:
                await self._write_what_waits()
            except Exception:  # without a writer every run of this worker would lose its log
                log.exception("Log lines could not be written")
        with self._desk.lock:
            for buffer in [*self._desk.closing, *self._desk.dirty]:
                self._desk.abandon(buffer)
        await self._store.leave_loop()

    async def _soon(self, event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def _write_what_waits(self) -> None:
        self._work.clear()
        self._hurry.clear()
        with self._desk.lock:
            self._desk.hurried = False
        writing: asyncio.Task[None] | None = None
        while parts := self._next_parts(beside=writing is not None):
            for part in parts:
                part.lines = part.buffer.numbered(part.taken)
            if writing is not None:
                await writing
            writing = asyncio.create_task(self._write(parts))
            await asyncio.sleep(0)
        if writing is not None:
            await writing
        with self._desk.lock:
            self._desk.awake = bool(self._desk.dirty)
            if self._desk.awake:
                self._work.set()

    def _next_parts(self, *, beside: bool) -> list[Part]:
        """What there is, up to a full batch. Beside a batch that is being written, a little is left to gather some more."""
        desk, parts = self._desk, []
        lines, size = LINES_PER_BATCH, BYTES_PER_BATCH
        with desk.lock:
            if beside and not desk.closing and sum(len(buffer.waiting) for buffer in desk.dirty) < LINES_PER_BATCH // 4:
                return []
            for _ in range(len(desk.dirty)):
                if lines <= 0 or size <= 0:
                    break
                buffer = desk.dirty.popleft()
                buffer.queued = False
                if buffer.held and not buffer.over:
                    continue
                part = self._part_of(buffer, lines, size)
                if buffer.waiting:
                    desk.enlist(buffer)
                if part is not None:
                    parts.append(part)
                    lines -= len(part.taken)
                    size -= part.size
        return parts

    def _part_of(self, buffer: RunBuffer, lines: int, size: int) -> Part | None:
        if buffer.over or not buffer.limit_reached:  # beyond the limit they are counted until the end
            buffer.say_what_was_dropped()
        taken, taken_size = buffer.take(lines, size)
        progress = buffer.progress is not None
        if progress and not buffer.over and (wait := buffer.progress_written_at + PROGRESS_SECONDS - time.monotonic()) > 0:
            self._loop.call_later(wait, self._look_again, buffer)
            progress = False
        if not taken and not progress:
            return None
        buffer.on_their_way += 1
        return Part(buffer, taken, taken_size, progress)

    def _look_again(self, buffer: RunBuffer) -> None:
        with self._desk.lock:
            if buffer.progress is not None:
                self._desk.enlist(buffer)
                self._desk.awake = True
                self._work.set()

    async def _write(self, parts: list[Part]) -> None:
        write, pause = self._write_together, RETRY_SECONDS
        while parts := [part for part in parts if not part.buffer.abandoned]:
            try:
                locked = await write(parts)
                self._database_answers([part for part in parts if part not in locked])
                if locked:
                    self._start(self._write_when_free(locked))
                return
            except StorageUnavailable:
                self._database_is_away()
            except Exception:
                log.exception("The database refused log lines of %d runs", len(parts))
                write = self._write_apart
                continue
            if self._stopping:
                return
            await asyncio.sleep(RETRY_SECONDS / 2)  # runs that end hurry us, but not into a flood
            await self._soon(self._hurry, pause)
            self._hurry.clear()
            pause = min(2 * pause, RETRY_SECONDS_MAX)

    async def _write_when_free(self, parts: list[Part]) -> None:
        """Another session has locked these jobs' rows; the lines of all other runs do not wait for it."""
        await asyncio.sleep(RETRY_SECONDS)
        await self._write(parts)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._writing_apart.add(task)
        task.add_done_callback(self._writing_apart.discard)

    def _database_is_away(self) -> None:
        desk, now = self._desk, time.monotonic()
        self._away_since = self._away_since or now
        with desk.lock:
            desk.away = True
            desk.room.notify_all()
            if now - self._away_since >= AWAY_PATIENCE_SECONDS:
                for buffer in list(desk.closing):
                    desk.abandon(buffer)

    def _database_answers(self, parts: list[Part]) -> None:
        desk = self._desk
        self._away_since = None
        with desk.lock:
            desk.away = False
            for part in parts:
                buffer = part.buffer
                buffer.on_their_way -= 1
                if not buffer.abandoned:
                    desk.free(buffer, part.size)
                    if buffer.over and buffer.settled:
                        desk.end(buffer)

    async def _write_together(self, parts: list[Part]) -> list[Part]:
        """The parts that could not be written because their jobs' rows are locked."""
        batches = [LogBatch(part.buffer.job_id, part.buffer.run_id, part.lines) for part in parts if part.lines]
        held = await self._store.log_append_if_leased(batches) if batches else set()
        refused = [part for part in parts if part.lines and part.buffer.run_id not in held]
        locked = [part for part in refused if await self._holds_its_job(part.buffer)]
        free = [part for part in parts if part not in locked]
        with self._desk.lock:
            for part in free:
                if part.lines and part.buffer.run_id not in held:
                    self._lease_is_lost(part.buffer)
                else:
                    self._lines_are_kept(part, part.taken)
                part.taken, part.lines = [], []
        await self._write_progress(free)
        return locked

    async def _holds_its_job(self, buffer: RunBuffer) -> bool:
        """Then what was refused was refused because another session has locked the job's row."""
        run = buffer.job_id, buffer.run_id
        return (await self._store.run_states([run])).get(buffer.run_id) in (State.RUNNING, State.COMPLETED)

    async def _write_progress(self, parts: list[Part]) -> None:
        for part in parts:
            buffer, progress = part.buffer, part.progress
            if progress is not None:
                written = await self._store.progress_set_if_leased(buffer.job_id, buffer.run_id, *progress)
                locked = not written and await self._holds_its_job(buffer)
                with self._desk.lock:
                    part.progress = None
                    buffer.progress_written_at = time.monotonic()
                    if buffer.progress == progress and not locked:
                        buffer.progress = None
                if locked:
                    self._loop.call_later(PROGRESS_SECONDS, self._look_again, buffer)

    def _lease_is_lost(self, buffer: RunBuffer) -> None:
        buffer.refused = True
        buffer.unkept = 0
        self._desk.abandon(buffer)

    def _lines_are_kept(self, part: Part, taken: list[Said | Notice]) -> None:
        part.buffer.unkept -= sum(1 if isinstance(line, Said) else line.dropped for line in taken)

    async def _write_apart(self, parts: list[Part]) -> list[Part]:
        """Something in a batch is nothing that the database takes: without it the lines around it have a chance."""
        for part in parts:
            refusals = 0
            pieces = [(0, len(part.lines))]
            bad: set[int] = set()
            while pieces and not part.buffer.abandoned:
                start, end = pieces.pop()
                try:
                    await self._write_piece(part.buffer, part.lines[start:end])
                except StorageUnavailable:
                    raise
                except Exception:
                    refusals += 1
                    if end - start == 1 or refusals > REFUSALS_MAX:
                        bad.update(range(start, end))
                    else:
                        middle = (start + end) // 2
                        pieces += [(middle, end), (start, middle)]
            with self._desk.lock:
                self._give_up(part, bad)
        with contextlib.suppress(StorageError):
            await self._write_progress(parts)
        return []

    async def _write_piece(self, buffer: RunBuffer, lines: Sequence[LogLine]) -> None:
        while buffer.run_id not in await self._store.log_append_if_leased([LogBatch(buffer.job_id, buffer.run_id, lines)]):
            if not await self._holds_its_job(buffer):
                with self._desk.lock:
                    self._lease_is_lost(buffer)
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _give_up(self, part: Part, bad: set[int]) -> None:
        """Lines that were refused become a line that says so; where not even that is taken, they are lost."""
        buffer = part.buffer
        if not buffer.abandoned:
            self._lines_are_kept(part, [line for number, line in enumerate(part.taken) if number not in bad])
            for line in (part.taken[number] for number in bad):
                if isinstance(line, Said):
                    buffer.dropped, buffer.dropped_why = buffer.dropped + 1, REFUSED
                else:
                    buffer.unkept -= line.dropped
                    buffer.lost += line.dropped
            if buffer.dropped:
                self._desk.enlist(buffer)
        part.taken, part.lines = [], []
