"""The application: `Extraction(hf)` joins a Holdfast, starts extractions, and sees each one to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import Abort, Holdfast, Job, RetryLater, Snooze, current
from holdfast.errors import InvalidOption, JobCancelled, LeaseLost, NotFound, StorageError
from holdfast.extraction import repositories
from holdfast.extraction.context import Credentials, ExtractionContext, Options, Project
from holdfast.extraction.errors import ExtractionInProgress, NothingToRetry
from holdfast.extraction.kinds import KINDS
from holdfast.extraction.pipeline import extraction_pipeline
from holdfast.extraction.repositories import ACTIVE, Repository
from holdfast.extraction.results import Results, RunRow, read_results, read_runs
from holdfast.extraction.sql import NAME, Statements
from holdfast.extraction.sync import ProjectKeeper, replace
from holdfast.pipeline import Outcome, Pipeline, redact

QUEUE = "extraction"
ATTEMPTS = 3
BACKOFF = (60.0, 300.0, 900.0)
LIST_MAX = 200
ENRICHED_AT_ONCE = 100

CredentialsFor = Callable[[Repository], Awaitable[Credentials | None]]
"""Minted or decrypted for one run; None: the repository is public."""
Registry = Callable[[Sequence[str]], Awaitable[Mapping[str, Mapping[str, Any]]]]
"""Package URLs -> what their registries know of them; a package that is left out stays pending."""


class Extraction:
    """Made once for a Holdfast, before `migrate()` and before a worker starts."""

    def __init__(
        self,
        hf: Holdfast,
        options: Options | None = None,
        *,
        pipeline: Pipeline | None = None,
        credentials: CredentialsFor | None = None,
        registry: Registry | None = None,
        queue: str = QUEUE,
    ) -> None:
        self.hf = hf
        self._options = options
        self._pipeline = pipeline or extraction_pipeline()
        self._credentials = credentials
        self._registry = registry

        @hf.task(name="extract", queue=queue, max_attempts=ATTEMPTS, backoff=BACKOFF, noun="Extraction", private=True)
        async def extract(repository: str) -> None:
            await self._extract(repository)

        @hf.task(name="extraction_enrich", queue=queue, max_attempts=ATTEMPTS, backoff=BACKOFF, noun="Enrichment", private=True)
        async def enrich(repository: str) -> None:
            await self._enrich(repository)

        self._task = extract
        self._follow_up = enrich
        hf.extend(NAME, migrations="holdfast.extraction.tables", tasks=[extract, enrich])

    # -- asked from outside --------------------------------------------------------------------------------------------

    async def connect(
        self, tenant: str, project: str, given: Project, *, integration: str | None = None, by: str | None = None
    ) -> Job[None]:
        """Connect a project to its repository and start the first extraction: all of it, or nothing."""
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            return await self._start(ask, await repositories.connect(ask, tenant, project, given, integration), by)

    async def start(self, tenant: str, project: str, *, by: str | None = None) -> Job[None]:
        """Extract what is connected; ExtractionInProgress while the project has an active extraction."""
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            return await self._start(ask, await repositories.locked(ask, tenant, project), by)

    async def _start(self, ask: Statements, repository: Repository, by: str | None) -> Job[None]:
        where, unique = f"{repository.tenant}/{repository.project}", f"extraction:{repository.id}"
        options = self._task.options(
            tenant=repository.tenant, project=repository.project, unique=unique, enqueued_by=by, tx=ask.tx
        )
        job = await options.enqueue(repository.id)
        if not job.created:
            raise ExtractionInProgress(
                f"An extraction of {where} is already in progress; wait for its end or cancel it.", job_id=job.id
            )
        await ask("repository_queue", repository.id, job.id)
        await ask("run_insert", repository.id, job.id)
        return job

    async def get(self, tenant: str, project: str) -> Repository:
        async with self.hf.transaction() as tx:
            found = await repositories.get(Statements(self.hf, tx), tenant, project)
        return await repositories.up_to_date(self.hf, found)

    async def list(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Repository]:
        """By project; `cursor` is that of the last one seen."""
        async with self.hf.transaction() as tx:
            rows = await Statements(self.hf, tx)("repository_list", tenant, cursor, _checked(limit))
        return [await repositories.up_to_date(self.hf, Repository(**row)) for row in rows]

    async def results(self, tenant: str, project: str) -> Results:
        """The newest of each kind, with the difference to the run before."""
        repository = await self.get(tenant, project)
        return await read_results(self.hf, repository)

    async def runs(self, tenant: str, project: str, *, before: int | None = None, limit: int = 50) -> Sequence[RunRow]:
        """Newest first; `before` is the number of the last one seen."""
        return await read_runs(self.hf, await self.get(tenant, project), before, _checked(limit))

    async def cancel(self, tenant: str, project: str, *, by: str | None = None) -> Repository:
        repository = await self.get(tenant, project)
        if repository.job_id is None:
            raise NotFound(f"{tenant}/{project} was never extracted, so there is nothing to cancel.")
        await self.hf.cancel(repository.job_id, by=by, tenant=tenant)
        return await self.get(tenant, project)

    async def retry(self, tenant: str, project: str, *, by: str | None = None) -> Job[None]:
        """The newest extraction once more, if it failed or was cancelled; its history stays."""
        repository = await self.get(tenant, project)
        if repository.job_id is not None and repository.status in ACTIVE:
            raise ExtractionInProgress(
                f"An extraction of {tenant}/{project} is already in progress; wait for its end or cancel it.",
                job_id=repository.job_id,
            )
        if repository.job_id is None or repository.status not in ("error", "cancelled"):
            raise NothingToRetry(f"The newest extraction of {tenant}/{project} did not fail, so there is nothing to retry.")
        return await self.hf.retry(repository.job_id, by=by, tenant=tenant)

    # -- one extraction ------------------------------------------------------------------------------------------------

    async def _extract(self, repository_id: str) -> None:
        run = current()
        repository = await self._begin(repository_id)
        keeper = ProjectKeeper(self.hf, repository_id, run.run_id)
        outcomes: Mapping[str, Outcome] = {}
        try:
            credentials = await self._credentials(repository) if self._credentials else None
            context = ExtractionContext(repository.as_project(), self._options, credentials=credentials, keeper=keeper)
            outcomes = context.outcomes
            await self._pipeline.run(context)
        except (LeaseLost, Snooze, RetryLater):
            raise
        except Exception as error:
            await self._tell_end(repository_id, error, outcomes)
            raise
        await self._finish(repository_id, outcomes)

    async def _begin(self, repository_id: str) -> Repository:
        """From here on this attempt alone may write the project's results."""
        run = current()
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            begun = await ask("repository_begin", repository_id, run.job_id, run.run_id)
            if not begun:
                raise Abort("The repository was disconnected, or a newer extraction of it was started", code="superseded")
            await ask("run_begin", run.job_id)
        return Repository(**begun[0])

    async def _finish(self, repository_id: str, outcomes: Mapping[str, Outcome]) -> None:
        """All at once: what was not scanned, the status, and the follow-up. Done twice, after a crash, it does no harm."""
        run = current()
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            if not await ask("repository_hold", repository_id, run.run_id):
                raise LeaseLost(f"job {run.job_id} is no longer held by this run")
            await self._admit_gaps(ask, repository_id, outcomes)
            await ask("run_end", run.job_id, _json(outcomes), None, None)
            await ask("repository_settle", repository_id, run.job_id, "ready")
            if self._registry is not None and await ask("dependencies_pending", repository_id):
                await self._follow_up.options(tenant=run.tenant, tx=tx).enqueue(repository_id)

    async def _admit_gaps(self, ask: Statements, repository_id: str, outcomes: Mapping[str, Outcome]) -> None:
        """What no step has looked for is *not scanned*; an older answer must not pass for this run's."""
        run = current()
        saved = {row["kind"] for row in await ask("scan_kinds", run.job_id)}
        for kind in KINDS.values():
            outcome = outcomes.get(kind.step)
            looked = outcome is not None and outcome.status in ("ok", "partial")
            if kind.name not in saved or not looked:
                reason = outcome.message if outcome is not None and not looked else None
                await replace(ask, repository_id, run.job_id, kind, None, reason, None)

    async def _tell_end(self, repository_id: str, error: Exception, outcomes: Mapping[str, Outcome]) -> None:
        run = current()
        is_last = isinstance(error, Abort) or run.attempt >= ATTEMPTS
        cancelled = isinstance(error, JobCancelled) or run.cancelled
        status = "cancelled" if cancelled else "error" if is_last else "queued"
        message = redact(str(error)) or type(error).__name__
        if cancelled:
            run.log.warning("Extraction cancelled", step="complete")
        elif is_last:
            run.log.error(f"Extraction failed: {message}", step="complete")
        with contextlib.suppress(StorageError):  # the job's own end is written all the same, and tells as much
            async with self.hf.transaction() as tx:
                ask = Statements(self.hf, tx)
                if await ask("repository_hold", repository_id, run.run_id):
                    code = str(getattr(error, "code", "task_error"))
                    await ask("run_end", run.job_id, _json(outcomes), code, message)
                    await ask("repository_settle", repository_id, run.job_id, status)

    # -- the follow-up -------------------------------------------------------------------------------------------------

    async def _enrich(self, repository_id: str) -> None:
        """What registries know, for all that is pending. If they are down it stays pending, also for the next extraction."""
        if self._registry is None:
            raise Abort("This worker has no registry to ask; give Extraction one", code="registry_missing")
        async with self.hf.transaction() as tx:
            pending = [row["purl"] for row in await Statements(self.hf, tx)("dependencies_pending", repository_id)]
        for start in range(0, len(pending), ENRICHED_AT_ONCE):
            current().check_cancelled()
            found = await self._registry(pending[start : start + ENRICHED_AT_ONCE])
            async with self.hf.transaction() as tx:
                known = msgspec.json.encode({purl: dict(facts) for purl, facts in found.items()}).decode()
                await Statements(self.hf, tx)("dependencies_enrich", repository_id, known)


def _json(outcomes: Mapping[str, Outcome]) -> str:
    return msgspec.json.encode(dict(outcomes)).decode()


def _checked(limit: int) -> int:
    if not 1 <= limit <= LIST_MAX:
        raise InvalidOption(f"limit must lie between 1 and {LIST_MAX}, not {limit}")
    return limit
