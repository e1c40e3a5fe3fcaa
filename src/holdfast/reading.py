"""What a caller may ask for (jobs, logs, events, a result), checked before the database is asked."""

from __future__ import annotations

import asyncio
import reprlib
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import codec
from holdfast.errors import InvalidOption, JobCancelled, JobFailed, JobNotFound, ResultTimeout
from holdfast.ids import is_uuid
from holdfast.job import Event, LogLine, State
from holdfast.redact import redact
from holdfast.store.protocol import JobFilter, LogFilter, Store

LEVELS = ("info", "success", "warning", "error")
LINES_MAX = 100_000
EVENTS_MAX = 200
NAME_CHARS_MAX = 200
SEARCH_CHARS_MAX = 1000
NUMBER_MAX = 2**53
RESULT_POLL_SECONDS = (0.005, 0.25)


def log_filter(
    *,
    after: int = 0,
    before: int | None = None,
    levels: Sequence[str] = (),
    step: str | None = None,
    search: str | None = None,
) -> LogFilter:
    if isinstance(levels, str) or not set(levels) <= set(LEVELS):
        raise InvalidOption(f"levels must be some of {', '.join(LEVELS)}, not {reprlib.repr(levels)}")
    return LogFilter(
        after=_checked("after", codec.whole(0, NUMBER_MAX), after),
        before=None if before is None else _checked("before", codec.whole(0, NUMBER_MAX), before),
        levels=tuple(levels),
        step=None if step is None else _checked("step", codec.text(NAME_CHARS_MAX), step),
        search=None if search is None else _checked("search", codec.text(SEARCH_CHARS_MAX), search),
    )


def matches(line: LogLine, where: LogFilter) -> bool:
    """What the database decides about stored lines, for lines that come live."""
    if (where.levels and line.level not in where.levels) or where.step not in (None, line.step):
        return False
    if where.search is None:
        return True
    said = [line.message, *map(_as_text, (line.metadata or {}).values())]
    return any(where.search.lower() in text.lower() for text in said)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def logs(store: Store, run_id: str, where: LogFilter, newest: bool, limit: int) -> list[LogLine]:
    _checked("limit", codec.whole(1, LINES_MAX), limit)
    return await store.log_read(run_id, where, limit=limit, newest=newest) if is_uuid(run_id) else []


async def events(store: Store, tenant: str | None, before: int | None, limit: int) -> list[Event]:
    """Newest first."""
    if tenant is not None:
        _checked("tenant", codec.text(NAME_CHARS_MAX), tenant)
    if before is not None:
        _checked("before", codec.whole(0, NUMBER_MAX), before)
    _checked("limit", codec.whole(1, EVENTS_MAX), limit)
    return await store.event_list(tenant=tenant, before=before, limit=limit)


async def events_of_job(store: Store, job_id: str) -> list[Event]:
    """All, oldest first."""
    found: list[Event] = []
    before = None
    while is_uuid(job_id):
        page = await store.event_list(job_id=job_id, before=before, limit=EVENTS_MAX)
        found += page
        if len(page) < EVENTS_MAX:
            break
        before = page[-1].id
    return found[::-1]


def _checked(name: str, check: codec.Check, value: Any) -> Any:
    try:
        return check(value)
    except ValueError as wrong:
        raise InvalidOption(f"{name} must be {wrong}, not {reprlib.repr(value)}") from None


def job_filter(where: dict[str, Any]) -> JobFilter:
    try:
        JobFilter(**where)  # refuses unknown names, which convert would pass over
        wanted = msgspec.convert(where, JobFilter)
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"jobs cannot be filtered like this: {error}") from None
    for name in ("queue", "task", "tenant", "project", "tag", "batch"):
        text(name, getattr(wanted, name))
    return wanted


def known_form(job_id: str) -> str:
    if not is_uuid(job_id):
        raise JobNotFound(f"There is no job {reprlib.repr(job_id)}.")
    return job_id


def person(by: str | None) -> str | None:
    return None if by is None else redact(text("by", by) or "")


def text(name: str, value: str | None) -> str | None:
    try:
        return None if value is None else str(codec.text(NAME_CHARS_MAX)(value))
    except ValueError as wrong:
        raise InvalidOption(f"{name} must be {wrong}, not {reprlib.repr(value)}") from None


async def wait_for_result(store: Store, job_id: str, timeout: float | None) -> Any:
    ends = None if timeout is None else time.monotonic() + timeout
    pause, longest = RESULT_POLL_SECONDS
    while True:
        job = await store.job_get(job_id)
        if job.state is State.COMPLETED:
            return job.output
        if job.state is State.FAILED:
            raise JobFailed(f"Job {job_id} ({job.task}) failed: {job.error_message or job.error_code}", job.error_code)
        if job.state is State.CANCELLED:
            raise JobCancelled(f"Job {job_id} ({job.task}) was cancelled by {job.cancel_requested_by or 'somebody'}.")
        if ends is not None and time.monotonic() >= ends:
            raise ResultTimeout(f"Job {job_id} ({job.task}) is still {job.status} after {timeout:g} s.")
        await asyncio.sleep(pause if ends is None else max(0.0, min(pause, ends - time.monotonic())))
        pause = min(longest, pause * 1.5)
