"""The log of a run: numbered lines and progress, gathered in memory and written in batches beside the job, fenced.

A log that cannot be written never fails the job: it is tried again while the run lives, and what is lost is counted.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import StorageError
from holdfast.job import LogLine
from holdfast.redact import redact, redact_value
from holdfast.settings import Settings
from holdfast.store.protocol import Store

FLUSH_SECONDS = 0.2
LINES_PER_BATCH = 1000
LINES_WAITING_MAX = 10_000


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
        self._progress: tuple[float | None, str | None] | None = None
        self._lock = threading.Lock()

    @property
    def dirty(self) -> bool:
        return bool(self._waiting) or self._progress is not None

    def add(self, level: str, message: str, step: str | None, duration_ms: float | None, metadata: dict[str, Any]) -> None:
        text = _clipped(redact(str(message)).replace("\x00", "\N{REPLACEMENT CHARACTER}"), self._settings.log_line_bytes_max)
        details = _storable(metadata, self._settings.log_metadata_bytes_max) if metadata else None
        now = datetime.now(UTC)
        with self._lock:
            if self._last_no > self._settings.log_lines_max or len(self._waiting) >= LINES_WAITING_MAX:
                self.dropped += 1
                return
            self._last_no += 1
            if self._last_no > self._settings.log_lines_max:
                level, text, details = (
                    "warning",
                    f"This run has reached {self._settings.log_lines_max} log lines; the rest is dropped.",
                    None,
                )
            self._waiting.append(
                LogLine(
                    run_id=self.run_id, no=self._last_no, level=level, message=text, step=step, duration_ms=duration_ms,
                    metadata=details, created_at=now,
                )
            )  # fmt: skip

    def set_progress(self, fraction: float | None, stage: str | None) -> None:
        with self._lock:
            old = self._progress or (None, None)
            self._progress = (old[0] if fraction is None else fraction, old[1] if stage is None else redact(stage)[:200])

    async def write(self, store: Store) -> None:
        """Write what waits; what the database did not take stays for the next time."""
        with self._lock:
            lines, progress = self._waiting[:LINES_PER_BATCH], self._progress
        if lines:
            if not await store.log_append_if_leased(self.job_id, self.run_id, lines):
                self.refused = True
            with self._lock:
                del self._waiting[: len(lines)]
        if progress is not None:
            await store.progress_set_if_leased(self.job_id, self.run_id, *progress)
            with self._lock:
                if self._progress == progress:
                    self._progress = None


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
            self._loop.call_soon_threadsafe(self._work.set)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            for buffer in list(self._dirty):
                await self._write(buffer)
            if self._dirty:
                self._work.set()
            await asyncio.sleep(FLUSH_SECONDS)

    async def close(self, buffer: RunBuffer) -> None:
        """The run is about to end: its last chance to keep what it said."""
        while buffer.dirty and not buffer.refused:
            if not await self._write(buffer):
                break
        self._dirty.discard(buffer)
        self.lines_lost += len(buffer._waiting) + buffer.dropped

    async def _write(self, buffer: RunBuffer) -> bool:
        self._dirty.discard(buffer)
        try:
            await buffer.write(self._store)
        except StorageError:
            self._dirty.add(buffer)
            return False
        if buffer.dirty and not buffer.refused:
            self._dirty.add(buffer)
        return True


def _clipped(text: str, most: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    return data[:most].decode("utf-8", "ignore") + f" … ({len(data) - most} bytes cut)"


def _storable(metadata: dict[str, Any], most: int) -> dict[str, Any]:
    """Metadata is for people: what JSON cannot say is shown as text, what is too large is said to be."""
    try:
        clean = redact_value(codec.decode(codec.encode(metadata)))
    except codec.NotJson:
        clean = {str(key): redact(repr(value).replace("\x00", "")) for key, value in metadata.items()}
    size = len(msgspec.json.encode(clean))
    return clean if size <= most else {"cut": f"metadata of {size} bytes, {most} are kept at most"}
