"""The verbs of Holdfast for sync programs: each waits for its async twin, there is no second implementation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.job import Event, Job, LogLine
from holdfast.why import Why

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.processes.worker import WorkerEnd
    from holdfast.reap import ReapReport


class SyncVerbs:
    def migrate_sync(self: Holdfast) -> list[str]:
        return self.call_sync(self.migrate())

    def get_sync(self: Holdfast, job_id: str) -> Job[Any]:
        return self.call_sync(self.get(job_id))

    def jobs_sync(self: Holdfast, *, cursor: str | None = None, limit: int = 50, **where: Any) -> list[Job[Any]]:
        return self.call_sync(self.jobs(cursor=cursor, limit=limit, **where))

    def cancel_sync(self: Holdfast, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.cancel(job_id, by=by))

    def retry_sync(self: Holdfast, job_id: str, *, by: str | None = None) -> Job[Any]:
        return self.call_sync(self.retry(job_id, by=by))

    def wait_for_result_sync(self: Holdfast, job_id: str, *, timeout: float | None = None) -> Any:
        return self.call_sync(self.wait_for_result(job_id, timeout=timeout))

    def events_sync(self: Holdfast, job_id: str | None = None, **where: Any) -> list[Event]:
        return self.call_sync(self.events(job_id, **where))

    def logs_sync(self: Holdfast, run_id: str, **where: Any) -> list[LogLine]:
        return self.call_sync(self.logs(run_id, **where))

    def follow_sync(self: Holdfast, job_id: str, *, run_no: int | None = None, after: int = 0) -> Iterator[LogLine]:
        lines = self.follow(job_id, run_no=run_no, after=after)

        async def next_line() -> LogLine | None:
            return await anext(lines, None)

        try:
            while (line := self.call_sync(next_line())) is not None:
                yield line
        finally:
            self.call_sync(lines.aclose())

    def run_worker_sync(
        self: Holdfast, *, queues: Sequence[str] | None = None, concurrency: int = 10, exit_when_idle: float | None = None
    ) -> WorkerEnd:
        return self.call_sync(self.run_worker(queues=queues, concurrency=concurrency, exit_when_idle=exit_when_idle))

    def why_sync(self: Holdfast, job_id: str) -> Why:
        return self.call_sync(self.why(job_id))

    def reap_sync(self: Holdfast) -> ReapReport:
        return self.call_sync(self.reap())
