"""Where tasks put their lines and the writer finds them: bounded, with the count of every line that did not fit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple

from holdfast.forking import reset_after_fork
from holdfast.job import LogLine
from holdfast.runlog.text import Limits, Said, cleaned, name_of, said, weight
from holdfast.settings import Settings

BYTES_OF_A_RUN_MAX = 32 * 1024 * 1024
BYTES_OF_ALL_MAX = 96 * 1024 * 1024
BYTES_ALWAYS = 64 * 1024
"""What every run may have waiting, however much the others have."""
HURRY_BYTES = 1024 * 1024
THREAD_WAIT_SECONDS = 5.0
LOOP_WAIT_SECONDS = 0.05
LOOP_WAIT_SHARE = 0.1
"""A full log may hold up the event loop for a moment, and for about this part of the time."""

TOO_FAST = "they came faster than the database took them"
AWAY = "the database was away"
REFUSED = "the database refused them"


class Notice(NamedTuple):
    """A line of the writer's own, as a rule where lines are missing."""

    dropped: int
    message: str
    at: float

    def as_line(self) -> Said:
        return Said("warning", self.message, 0, None, None, None, self.at)


class RunBuffer:
    """What one run has said and what is not written yet. From any thread; all under the desk's lock.

    A finalizer, a signal handler or a tracing hook may log while its own thread is inside that lock. What it logs is handed to
    the holder of the lock, which adds it on release: see `Desk`.
    """

    def __init__(self, job_id: str, run_id: str, settings: Settings, desk: Desk) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.waiting: deque[Said | Notice] = deque()
        self.progress: tuple[float | None, str | None] | None = None
        self.progress_written_at = 0.0
        self.bytes_waiting = 0
        """Of all lines that are not written, those on their way included."""
        self.dropped = 0
        """Lines that are missing behind what waits."""
        self.dropped_why = TOO_FAST
        self.limit_reached = False
        self.unkept = 0
        """Lines of which the database does not know yet, be it that they are missing."""
        self.lost = 0
        """Lines that not even the log itself can say are missing."""
        self.over = False
        """The run has ended or lost its lease: no more lines are taken."""
        self.held = False
        """Its job's row is locked by the task's own transaction: to write now would hold up the lines of all runs."""
        self.refused = False
        self.abandoned = False
        """Nothing more of it is written."""
        self.queued = False
        self.on_their_way = 0
        self.on_end: Callable[[], None] | None = None
        self._limits = Limits.of(settings)
        self._lines_max = settings.log_lines_max
        self._desk = desk
        self._said = 0
        self._last_no = 0

    # -- the task's side

    def add(self, level: str, message: object, step: object, duration_ms: object, metadata: dict[str, Any] | None) -> None:
        self.put(said(level, message, step, duration_ms, metadata, self._limits))

    def note(self, level: str, message: str, metadata: dict[str, Any] | None) -> None:
        self.put(said(level, message, None, None, metadata, self._limits), ours=True)

    def put(self, line: Said, *, ours: bool = False) -> None:
        """A line waits a little for room, and is counted where there is none. Lines of Holdfast itself are always kept: there
        are few, and how a run ended is worth more than any line of the task's."""
        size, desk = weight(line), self._desk
        if desk.held_here():
            desk.late.append((self._put, line, ours, size))
            return
        with desk.inner_lock:
            self._put(line, ours, size)
        if desk.late:
            desk.add_late()

    def _put(self, line: Said, ours: bool, size: int) -> None:
        desk = self._desk
        if self.over or desk.inherited:
            return
        if ours:
            self.say_what_was_dropped()
        elif self._said >= self._lines_max:
            return self._drop_beyond_limit()
        elif self.bytes_waiting > BYTES_ALWAYS and self.is_full and not desk.wait_for_room(self):
            return self._drop(AWAY if desk.away else TOO_FAST)
        elif self.dropped:
            self.say_what_was_dropped()
        self._said += not ours
        self.unkept += 1
        self.waiting.append(line)
        self.bytes_waiting += size
        desk.bytes_waiting += size
        if not self.queued or (desk.bytes_waiting > HURRY_BYTES and not desk.hurried):
            desk.gained(self)

    def set_progress(self, fraction: float | None, stage: str | None) -> None:
        stage = None if stage is None else name_of(stage)
        desk = self._desk
        if desk.held_here():
            desk.late.append((self._set_progress, fraction, stage))
            return
        with desk.lock:
            self._set_progress(fraction, stage)

    def _set_progress(self, fraction: float | None, stage: str | None) -> None:
        if not self.over and not self._desk.inherited:
            old = self.progress or (None, None)
            self.progress = (old[0] if fraction is None else fraction, old[1] if stage is None else stage)
            self._desk.gained(self)

    @property
    def is_full(self) -> bool:
        waiting = self.bytes_waiting
        return waiting > BYTES_OF_A_RUN_MAX or (waiting > BYTES_ALWAYS and self._desk.bytes_waiting > BYTES_OF_ALL_MAX)

    @property
    def should_wait(self) -> bool:
        """For those who can wait, well before the log is full: they come with many lines at once."""
        if self.over or self.limit_reached or self._desk.away:
            return False
        return self.bytes_waiting > BYTES_OF_A_RUN_MAX // 2 or (
            self.bytes_waiting > BYTES_ALWAYS and self._desk.bytes_waiting > BYTES_OF_ALL_MAX // 2
        )

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self.dropped_why = why
        self.unkept += 1
        self._desk.gained(self)

    def _drop_beyond_limit(self) -> None:
        if not self.limit_reached:
            self.say_what_was_dropped()
            self.limit_reached = True
            text = f"This run has reached {self._lines_max} log lines; the rest is dropped."
            self.waiting.append(Notice(0, text, time.time()))
        self._drop(f"the run had reached {self._lines_max}")

    # -- the writer's side

    @property
    def settled(self) -> bool:
        return not (self.waiting or self.on_their_way or self.dropped or self.progress)

    def say_what_was_dropped(self) -> None:
        if self.dropped:
            what = "1 line" if self.dropped == 1 else f"{self.dropped} lines"
            self.waiting.append(Notice(self.dropped, f"{what} dropped: {self.dropped_why}.", time.time()))
            self.dropped = 0

    def take(self, lines: int, size: int) -> tuple[list[Said | Notice], int]:
        """The first ones, within both limits but at least one, and their weight."""
        taken: list[Said | Notice] = []
        taken_size = 0
        for line in islice(self.waiting, lines):
            if taken_size > size:
                break
            taken.append(line)
            if isinstance(line, Said):
                taken_size += weight(line)
        if len(taken) == len(self.waiting):
            self.waiting.clear()
        else:
            for _ in taken:
                self.waiting.popleft()
        return taken, taken_size

    def numbered(self, taken: list[Said | Notice]) -> list[LogLine]:
        """In the writer's thread alone."""
        lines = cleaned([line if isinstance(line, Said) else line.as_line() for line in taken], self._limits)
        first, run_id, moment = self._last_no + 1, self.run_id, datetime.fromtimestamp
        self._last_no += len(lines)
        return [
            LogLine(
                run_id=run_id,
                no=no,
                level=level,
                message=message,
                step=step,
                duration_ms=duration_ms,
                metadata=metadata,  # type: ignore[arg-type]
                created_at=moment(at, UTC),
            )
            for no, (level, message, _, step, duration_ms, metadata, at) in enumerate(lines, first)
        ]


class Desk:
    """What the tasks and the writer share: who has something to say, and how much waits.

    `lock` must not be taken twice by one thread: what is changed inside it would change under its holder. Code of users can
    run in the middle of it all the same (`__del__`, signal handlers, tracing hooks). It asks `held_here` and leaves its work
    in `late`, which the holder does on release.
    """

    def __init__(self, wake: Callable[[], bool], hurry: Callable[[], None]) -> None:
        self.late: deque[tuple[Any, ...]] = deque()
        """Functions with their arguments, to be called under the lock."""
        self._make_lock()
        self.inherited = False
        """This process was forked from the worker: the writer's thread exists only there, so nothing is taken here."""
        self.dirty: deque[RunBuffer] = deque()
        self.closing: set[RunBuffer] = set()
        self.bytes_waiting = 0
        self.awake = False
        self.hurried = False
        self.away = False
        self._wake = wake
        self._hurry = hurry
        self._loop_may_wait_at = 0.0
        reset_after_fork(self)

    def _make_lock(self) -> None:
        self.inner_lock = threading.RLock()
        self.room = threading.Condition(self.inner_lock)
        self.held_here: Callable[[], bool] = self.room._is_owned  # type: ignore[attr-defined]
        self.lock = _Released(self)

    def _reset_after_fork(self) -> None:
        self._make_lock()
        self.late.clear()
        self.inherited = True

    def add_late(self) -> None:
        """What came while its own thread was inside the lock."""
        while self.late:
            with self.inner_lock:
                while self.late:
                    work, *arguments = self.late.popleft()
                    work(*arguments)

    def gained(self, buffer: RunBuffer) -> None:
        if not buffer.queued:
            self.enlist(buffer)
            if not self.awake:
                self.awake = self._wake()
        if self.bytes_waiting > HURRY_BYTES and not self.hurried:
            self.hurried = True
            self._hurry()

    def wait_for_room(self, buffer: RunBuffer) -> bool:
        """A thread may wait a while, the event loop a moment now and then; nobody waits for a database that is away."""
        if self.away:
            return False
        started = time.monotonic()
        on_loop = asyncio._get_running_loop() is not None
        if on_loop and started < self._loop_may_wait_at:
            return False
        seconds = LOOP_WAIT_SECONDS if on_loop else THREAD_WAIT_SECONDS
        self.room.wait_for(lambda: self.away or buffer.over or not buffer.is_full, seconds)
        if on_loop:
            ended = time.monotonic()
            self._loop_may_wait_at = ended + (ended - started) / LOOP_WAIT_SHARE
        elif buffer.is_full:
            self.away = True  # until it answers again
        return not buffer.is_full and not buffer.over

    def enlist(self, buffer: RunBuffer) -> None:
        if not buffer.queued:
            buffer.queued = True
            self.dirty.append(buffer)

    def free(self, buffer: RunBuffer, size: int) -> None:
        buffer.bytes_waiting -= size
        self.bytes_waiting -= size
        self.room.notify_all()

    def abandon(self, buffer: RunBuffer) -> None:
        buffer.over = buffer.abandoned = True
        buffer.waiting.clear()
        buffer.dropped, buffer.progress = 0, None
        self.free(buffer, buffer.bytes_waiting)
        self.end(buffer)

    def end(self, buffer: RunBuffer) -> None:
        self.closing.discard(buffer)
        if buffer.on_end is not None:
            buffer.on_end()
            buffer.on_end = None


class _Released:
    """The desk's lock, for `with`: what came late is added on release."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __enter__(self) -> None:
        self._desk.inner_lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._desk.inner_lock.release()
        if self._desk.late:
            self._desk.add_late()
