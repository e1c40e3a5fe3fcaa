"""The verbs of Holdfast that look at jobs and act on one of them."""

from __future__ import annotations

import reprlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from holdfast import reading, sealing
from holdfast.clock import DatabaseClock
from holdfast.errors import InvalidOption
from holdfast.follow import Hubs, batches
from holdfast.ids import is_uuid
from holdfast.job import Event, Job, LogLine, Run
from holdfast.settings import Settings
from holdfast.stats import Stats, stats_of
from holdfast.store.protocol import Store, WorkerRow

if TYPE_CHECKING:
    from holdfast.why import Why

LIST_MAX = 200


class Looking:
    """A part of Holdfast, which has the attributes."""

    store: Store
    settings: Settings
    clock: DatabaseClock
    _hubs: Hubs

    async def get(self, job_id: str, *, tenant: str | None = None) -> Job[Any]:
        """`tenant`, here and below: only if it is this tenant's; else there is no such job."""
        return self._ours(await self.store.job_get(reading.known_form(job_id), tenant=tenant))

    async def jobs(self, *, cursor: str | None = None, limit: int = 50, **where: Any) -> list[Job[Any]]:
        """Newest first. `where`: state, queue, task, tenant, project, tag, after, before."""
        if not 1 <= limit <= LIST_MAX:
            raise InvalidOption(f"limit must lie between 1 and {LIST_MAX}, not {limit}")
        wanted = reading.job_filter(where)
        if cursor is not None and not is_uuid(cursor):
            raise InvalidOption(f"cursor must be the id of a job, not {reprlib.repr(cursor)}")
        return [self._ours(job) for job in await self.store.job_list(wanted, cursor=cursor, limit=limit)]

    async def runs(self, job_id: str, *, tenant: str | None = None) -> list[Run]:
        """Every attempt, newest first."""
        return await self.store.run_list(reading.known_form(job_id), tenant=tenant)

    async def events(
        self, job_id: str | None = None, *, tenant: str | None = None, before: int | None = None, limit: int = 50
    ) -> list[Event]:
        """All of one job, oldest first; without a job those of a tenant or of everybody, newest first and by pages, where
        `before` is the id of the last one seen."""
        if job_id is not None:
            if tenant is not None or before is not None:
                raise InvalidOption("events takes a job, or a tenant and pages; not both")
            return await reading.events_of_job(self.store, job_id)
        return await reading.events(self.store, tenant, before, limit)

    async def logs(
        self,
        run_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        levels: Sequence[str] = (),
        step: str | None = None,
        search: str | None = None,
        newest: bool = False,
        limit: int = 1000,
    ) -> list[LogLine]:
        """Lines of one run by number: the first `limit` that match, or with `newest` the last ones. `after` and `before` are
        numbers, `search` is plain text in whatever case."""
        where = reading.log_filter(after=after, before=before, levels=levels, step=step, search=search)
        return await reading.logs(self.store, run_id, where, newest, limit)

    async def follow(self, job_id: str, *, run_no: int | None = None, after: int = 0) -> AsyncGenerator[LogLine, None]:
        """Lines as they are written: of one run until its end, or of the newest run and all later ones until the job ends.
        `after` is the number of the last line seen, so that a reader who comes back misses none and sees none twice."""
        start = reading.log_filter(after=after).after
        async with aclosing(batches(self._hubs, self.store, reading.known_form(job_id), run_no, start)) as found:
            async for lines in found:
                for line in lines:
                    yield line

    async def why(self, job_id: str) -> Why:
        """What holds this job, in one sentence."""
        from holdfast.why import Machines, why_job

        settings = self.settings
        machines = None
        if settings.machine_provider != "none":
            machines = Machines(settings.machine_provider, settings.machine_boot + settings.reaper_interval)
        return await why_job(self.store, reading.known_form(job_id), self.clock.now(), machines)

    async def why_tenant(self, tenant: str) -> Why:
        """What holds this tenant's jobs, in one sentence."""
        from holdfast.why import why_tenant

        return await why_tenant(self.store, tenant)

    async def stats(self, *, tenant: str | None = None) -> Stats:
        """What waits and runs, how fast, and what needs attention; of one tenant, or of all."""
        return await stats_of(self.store, self.settings, reading.text("tenant", tenant))

    async def workers(self) -> list[WorkerRow]:
        return await self.store.worker_list()

    async def cancel(self, job_id: str, *, by: str | None = None, tenant: str | None = None) -> Job[Any]:
        """A queued job is cancelled at once; a running one is asked to stop and is *cancelling* until it does."""
        return self._ours(await self.store.job_cancel(reading.known_form(job_id), reading.person(by), tenant=tenant))

    async def retry(self, job_id: str, *, by: str | None = None, tenant: str | None = None) -> Job[Any]:
        """Queue a failed or cancelled job anew; its attempts start again at 0, its history stays."""
        return self._ours(await self.store.job_retry_if_ended(reading.known_form(job_id), reading.person(by), tenant=tenant))

    async def wait_for_result(self, job_id: str, *, timeout: float | None = None) -> Any:
        """What the task returned; raises JobFailed, JobCancelled or ResultTimeout."""
        value = await reading.wait_for_result(self.store, job_id, timeout)
        return sealing.open_value(self.settings.encryption_keys, value, f"{job_id}:result")

    def _ours(self, job: Job[Any]) -> Job[Any]:
        job._app = self
        return job
