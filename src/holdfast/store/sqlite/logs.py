"""The log of a run and the events on SQLite: part of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.clock import DatabaseClock
from holdfast.errors import StorageError
from holdfast.job import Event, LogLine
from holdfast.store.protocol import LogBatch, LogFilter
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json

T = TypeVar("T")
NEWEST = STATEMENTS["log_read"].replace("ORDER BY no", "ORDER BY no DESC")


class LogVerbs:
    _clock: DatabaseClock

    async def _read(self, operation: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def _write(self, operation: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def log_append_if_leased(self, batches: Sequence[LogBatch]) -> set[str]:
        def operation(session: Session) -> set[str]:
            # The host's clock is the database's, so there is nothing to move, unless a test owns the time.
            shift = 0.0 if self._clock.now() is None else session.now - time.time()
            return {batch.run_id for batch in batches if _append(session, batch, shift)}

        return await self._write(operation) if batches else set()

    async def log_read(self, run_id: str, where: LogFilter, *, limit: int, newest: bool = False) -> list[LogLine]:
        values = {
            "run_id": run_id,
            "after": where.after,
            "before": where.before,
            "levels": as_json(where.levels) if where.levels else None,
            "step": where.step,
            "search": where.search,
            "limit": limit,
        }
        sql = NEWEST if newest else STATEMENTS["log_read"]
        found = await self._read(lambda session: session.execute(sql, values).fetchall())
        return [rows.log_line_of(row) for row in (reversed(found) if newest else found)]

    async def log_read_new(self, cursors: Sequence[tuple[str, int]], *, limit: int) -> list[LogLine]:
        def operation(session: Session) -> list[LogLine]:
            asked = [{"run_id": run_id, "after": after, "limit": limit} for run_id, after in sorted(cursors)]
            return [rows.log_line_of(row) for values in asked for row in session.all("log_read_new", **values)]

        return await self._read(operation)

    async def run_open(self, runs: Sequence[tuple[str, str]]) -> set[str]:
        return await self._read(lambda session: {row["run_id"] for row in session.all("run_open", runs=as_json(runs))})

    async def event_list(
        self, *, job_id: str | None = None, tenant: str | None = None, before: int | None = None, limit: int
    ) -> list[Event]:
        values: dict[str, Any] = {"job_id": job_id, "tenant": tenant, "before": before, "limit": limit}
        name = "event_list_of_job" if job_id is not None else "event_list" if tenant is None else "event_list_of_tenant"
        return await self._read(lambda session: [rows.event_of(row) for row in session.all(name, **values)])


def _append(session: Session, batch: LogBatch, shift: float) -> bool:
    job = session.one("log_lease", id=batch.job_id, run_id=batch.run_id)
    if job is None:
        return False
    if batch.lines:
        same = (batch.run_id, batch.job_id, job["tenant"], job["project"])
        try:
            session.connection.executemany(STATEMENTS["log_insert"], _rows(same, batch.lines, session.now, shift))
        except (UnicodeError, OverflowError, TypeError) as error:
            raise StorageError(f"A log line of job {batch.job_id} cannot be stored: {error}.") from error
        session.wake_log(batch.run_id)
    return True


def _rows(same: tuple[Any, ...], lines: Sequence[LogLine], now: float, shift: float) -> Iterator[tuple[Any, ...]]:
    for line in lines:
        metadata = None if line.metadata is None else as_json(line.metadata)
        said_at = now if line.created_at is None else min(now, line.created_at.timestamp() + shift)
        yield *same, line.no, line.level, line.message, line.step, line.duration_ms, metadata, said_at
