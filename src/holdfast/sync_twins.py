"""The verbs of Holdfast for programs without asyncio: each calls its twin on a loop in the background."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.job import Event, Job, LogLine
from holdfast.looking import Looking
from holdfast.portal import Portal

if TYPE_CHECKING:
    from holdfast.why import Why

T = TypeVar("T")


class SyncTwins(Looking):
    """A part of Holdfast, which has the portal."""

    _portal: Portal

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T:
        return self._portal.call(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """On that loop, beside the caller."""
        return self._portal.submit(work)

    def get_sync(self, job_id: str) -> Job[Any]:
        return self.call_sync(self.get(job_id))

    def jobs_sync(self, *, cursor: str | None = None, limit: int = 50, **where: Any) -> list[Job[Any]]:
        return self.call_sync(self.jobs(cursor=cursor, limit=limit, **where))

    def cancel_sync(self, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.cancel(job_id, by=by))

    def retry_sync(self, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.retry(job_id, by=by))

    def wait_for_result_sync(self, job_id: str, *, timeout: float | None = None) -> Any:
        return self.call_sync(self.wait_for_result(job_id, timeout=timeout))

    def events_sync(self, job_id: str | None = None, **where: Any) -> list[Event]:
        return self.call_sync(self.events(job_id, **where))

    def logs_sync(self, run_id: str, **where: Any) -> list[LogLine]:
        return self.call_sync(self.logs(run_id, **where))

    def follow_sync(self, job_id: str, *, run_no: int | None = None, after: int = 0) -> Iterator[LogLine]:
        lines = self.follow(job_id, run_no=run_no, after=after)

        async def next_line() -> LogLine | None:
            return await anext(lines, None)

        try:
            while (line := self.call_sync(next_line())) is not None:
                yield line
        finally:
            self.call_sync(lines.aclose())

    def why_sync(self, job_id: str) -> Why:
        return self.call_sync(self.why(job_id))
