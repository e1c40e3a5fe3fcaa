"""The log of a run: numbered lines and progress, gathered in memory and written in batches beside the job, fenced.

A log that cannot be written never fails the job: it is tried again while the run lives, and what is lost is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import StorageUnavailable
from holdfast.job import LogLine
from holdfast.redact import redact, redact_value
from holdfast.settings import Settings
from holdfast.store.protocol import Store

log = logging.getLogger("holdfast")

FLUSH_SECONDS = 0.2
LINES_PER_BATCH = 1000
BYTES_WAITING_MAX = 32 * 1024 * 1024
LINE_OVERHEAD_BYTES = 200
NAME_CHARS_MAX = 200
SENT_CHARS_MAX = 1_000_000
"""Of a line on its way from an isolated process; the worker then cuts it to the configured size."""


class RunBuffer:
    """What one run has said and what is not written yet. Lines may come from any thread."""

    def __init__(self, job_id: str, run_id: str, settings: Settings) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.refused = False
        self.dropped = 0
        self._settings = settings
        self._last_no = 0
        self._waiting: list[LogLine] = []
        self._bytes_waiting = 0
        self._progress: tuple[float | None, str | None] | None = None
        self._lock = threading.Lock()
        self._writing = asyncio.Lock()

    @property
    def dirty(self) -> bool:
        return bool(self._waiting) or self._progress is not None

    @property
    def lines_waiting(self) -> int:
        return len(self._waiting)

    def add(self, level: str, message: str, step: str | None, duration_ms: float | None, metadata: dict[str, Any]) -> None:
        line = LogLine(
            run_id=self.run_id,
            no=0,
            level=level,
            message=_clipped(shown(message), self._settings.log_line_bytes_max),
            step=None if step is None else _name(step),
            duration_ms=_duration(duration_ms),
            metadata=_plain(metadata, self._settings.log_metadata_bytes_max) if metadata else None,
            created_at=datetime.now(UTC),
        )
        with self._lock:
            if self._last_no > self._settings.log_lines_max or self._bytes_waiting >= BYTES_WAITING_MAX:
                self.dropped += 1
                return
            if self._last_no == self._settings.log_lines_max:
                line.level, line.metadata = "warning", None
                line.message = f"This run has reached {self._settings.log_lines_max} log lines; the rest is dropped."
            self._append(line)

    def say_what_was_dropped(self) -> None:
        with self._lock:
            if self.dropped and self._last_no < self._settings.log_lines_max:
                text = f"{self.dropped} log lines of this run came faster than the database could take them and are lost."
                self._append(LogLine(run_id=self.run_id, no=0, level="warning", message=text, created_at=datetime.now(UTC)))

    def _append(self, line: LogLine) -> None:
        self._last_no += 1
        line.no = self._last_no
        self._waiting.append(line)
        self._bytes_waiting += _size(line)

    def set_progress(self, fraction: float | None, stage: str | None) -> None:
        with self._lock:
            old = self._progress or (None, None)
            self._progress = (old[0] if fraction is None else fraction, old[1] if stage is None else _name(stage))

    async def write(self, store: Store) -> None:
        """Write what waits; what the database did not take stays for the next time."""
        async with self._writing:  # the run's end may meet a flush that is under way
            await self._write(store)

    async def _write(self, store: Store) -> None:
        with self._lock:
            lines, progress = self._waiting[:LINES_PER_BATCH], self._progress
        if lines:
            if not await store.log_append_if_leased(self.job_id, self.run_id, lines):
                self.refused = True
            self._forget(len(lines))
        if progress is not None:
            await store.progress_set_if_leased(self.job_id, self.run_id, *progress)
            with self._lock:
                if self._progress == progress:
                    self._progress = None

    def give_up_batch(self) -> None:
        """The database will never take this: without it the lines behind it have a chance."""
        with self._lock:
            lines, self._progress = min(LINES_PER_BATCH, len(self._waiting)), None
            self.dropped += lines
        self._forget(lines)

    def _forget(self, lines: int) -> None:
        with self._lock:
            self._bytes_waiting -= sum(map(_size, self._waiting[:lines]))
            del self._waiting[:lines]


class RunLogs:
    """Writes the buffers of all runs of a worker, a few times a second and once more when a run ends."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty: set[RunBuffer] = set()
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.Event()
        self.lines_lost = 0

    def touched(self, buffer: RunBuffer) -> None:
        """From any thread: this buffer has something to write."""
        if buffer not in self._dirty:
            self._dirty.add(buffer)
            with contextlib.suppress(RuntimeError):  # a thread that outlived its worker still talks
                self._loop.call_soon_threadsafe(self._work.set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            behind = False
            for buffer in list(self._dirty):
                written = await self._write(buffer)
                behind = behind or (written and buffer.lines_waiting >= LINES_PER_BATCH)
            if self._dirty:
                self._work.set()
            await asyncio.sleep(0 if behind else FLUSH_SECONDS)

    async def close(self, buffer: RunBuffer) -> None:
        """The run is about to end: its last chance to keep what it said."""
        buffer.say_what_was_dropped()
        while buffer.dirty and not buffer.refused:
            if not await self._write(buffer):
                break
        self._dirty.discard(buffer)
        lost = buffer.lines_waiting + buffer.dropped
        if lost and not buffer.refused:
            self.lines_lost += lost
            log.warning("%d log lines of job %s could not be kept.", lost, buffer.job_id)

    async def _write(self, buffer: RunBuffer) -> bool:
        self._dirty.discard(buffer)
        try:
            await buffer.write(self._store)
        except StorageUnavailable:
            self._dirty.add(buffer)
            return False
        except Exception:
            log.exception("The database refused log lines of job %s", buffer.job_id)
            buffer.give_up_batch()
        if buffer.dirty and not buffer.refused:
            self._dirty.add(buffer)
        return True


# -- whatever a task hands in becomes something that both databases can hold ---------------------------------------------


def shown(value: object) -> str:
    """As text, also where its own `__str__` raises."""
    try:
        return str(value)
    except BaseException:
        return f"({type(value).__name__} that cannot be shown)"


def storable(text: str) -> str:
    """Without what PostgreSQL refuses (NUL) and what is no Unicode (lone surrogates)."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def storable_line(
    level: str, message: object, step: object, duration_ms: object, metadata: dict[str, Any]
) -> tuple[str, str, str | None, float | None, dict[str, Any]]:
    """A line that can be sent as JSON."""
    text = storable(shown(message)[:SENT_CHARS_MAX])
    details = _plain(metadata, SENT_CHARS_MAX) if metadata else {}
    return level, text, None if step is None else _name(step), _duration(duration_ms), details


def _name(value: object) -> str:
    return storable(redact(shown(value)[: 5 * NAME_CHARS_MAX]))[:NAME_CHARS_MAX]


def _duration(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _size(line: LogLine) -> int:
    return LINE_OVERHEAD_BYTES + len(line.message) + (len(msgspec.json.encode(line.metadata)) if line.metadata else 0)


def _clipped(text: str, bytes_max: int) -> str:
    # Redacting a hundred megabytes would hold up everybody; what stands beyond twice the limit is not kept anyway.
    data = storable(redact(text[: 2 * bytes_max])).encode()
    if len(data) <= bytes_max and len(text) <= 2 * bytes_max:
        return data.decode()
    cut = len(text.encode("utf-8", "replace")) - bytes_max
    return data[:bytes_max].decode("utf-8", "ignore") + f" … ({max(1, cut)} bytes cut)"


def _plain(metadata: dict[str, Any], bytes_max: int) -> dict[str, Any]:
    """Metadata is for people: what JSON cannot say is shown as text, what is too large is said to be."""
    try:
        clean = redact_value(codec.decode(codec.encode(metadata)))
    except codec.NotJson:
        clean = {_name(key): storable(redact(_represented(value)[: 2 * bytes_max])) for key, value in metadata.items()}
    size = len(msgspec.json.encode(clean))
    return clean if size <= bytes_max else {"cut": f"metadata of {size} bytes, {bytes_max} are kept at most"}


def _represented(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"({type(value).__name__} that cannot be shown)"
