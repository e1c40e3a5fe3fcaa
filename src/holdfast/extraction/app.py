"""The application: `Extraction(hf)` joins a Holdfast, starts extractions, and sees each one to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from holdfast import Abort, Holdfast, Job, RetryLater, Snooze, current
from holdfast.errors import JobCancelled, LeaseLost, NotFound, StorageError
from holdfast.extraction import enrichment, reading, repositories
from holdfast.extraction.context import Credentials, ExtractionContext, Options, Project
from holdfast.extraction.enrichment import Registry
from holdfast.extraction.errors import ExtractionInProgress, NothingToRetry
from holdfast.extraction.github_app import GitHubApp
from holdfast.extraction.health import Health
from holdfast.extraction.health import health as read_health
from holdfast.extraction.integrations import Integrations
from holdfast.extraction.kinds import KINDS
from holdfast.extraction.pipeline import extraction_pipeline
from holdfast.extraction.reading import ListedKind, Overview, Page, Summary, checked_limit
from holdfast.extraction.registry import registry_for
from holdfast.extraction.report import encoded
from holdfast.extraction.repositories import ACTIVE, Repository
from holdfast.extraction.results import Results, RunRow, read_results, read_runs
from holdfast.extraction.sealing import Vault
from holdfast.extraction.sql import NAME, Statements
from holdfast.extraction.sync import ProjectKeeper, replace
from holdfast.pages import Pages
from holdfast.pipeline import Outcome, Pipeline, redact

QUEUE = "extraction"
ATTEMPTS = 3
BACKOFF = (60.0, 300.0, 900.0)
MACHINE_SECONDS = 2.0
"""So long somebody who connects a repository waits for a machine to be asked for."""
log = logging.getLogger("holdfast.extraction")

CredentialsFor = Callable[[Repository], Awaitable[Credentials | None]]
"""Opened or minted for one run; None: the repository is public."""
AskMachine = Callable[[str], Awaitable[None]]
"""See to it that somebody serves this queue. It may raise: the job waits, and recovery asks again."""


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
        vault: Vault | None = None,
        github: GitHubApp | None = None,
        ask_machine: AskMachine | None = None,
        queue: str = QUEUE,
    ) -> None:
        """`credentials`, `registry`, `vault` and `github` come from the integrations and the environment, unless given."""
        self.hf = hf
        self.queue = queue
        self.options = options or Options.from_environment()
        self.integrations = Integrations(hf, vault or Vault.from_environment(), github or GitHubApp.from_environment())
        self._pipeline = pipeline or extraction_pipeline(self.options)
        self._credentials = credentials or self.integrations.credentials_for
        self._registry = registry or registry_for(self.options.registry)
        self._ask_machine = ask_machine or self._ask_orchestrator

        @hf.task(name="extract", queue=queue, max_attempts=ATTEMPTS, backoff=BACKOFF, noun="Extraction", private=True)
        async def extract(repository: str) -> None:
            await self._extract(repository)

        @hf.task(name="extraction_enrich", queue=queue, max_attempts=ATTEMPTS, backoff=BACKOFF, noun="Enrichment", private=True)
        async def enrich(repository: str) -> None:
            await enrichment.enrich(self.hf, self._registry, repository)

        self._task = extract
        self._follow_up = enrich
        routers = [_router, _integrations_router]
        parts = {"tasks": [extract, enrich], "routers": routers, "pages": _page_groups(), "application": self}
        hf.extend(NAME, migrations="holdfast.extraction.tables", **parts)

    @classmethod
    def of(cls, hf: Holdfast) -> Extraction:
        """The one that has joined this Holdfast."""
        found: Extraction = hf.extensions[NAME].application
        return found

    # -- asked from outside --------------------------------------------------------------------------------------------

    async def connect(
        self,
        tenant: str,
        project: str,
        given: Project,
        *,
        integration: str | None = None,
        by: str | None = None,
        tx: Any = None,
    ) -> Job[None]:
        """Connect a project to its repository and start the first extraction: all of it, or nothing."""
        async with self._within(tx) as ask:
            repository = await repositories.connect(ask, tenant, project, given, integration)
            await self._note(ask, "repository.connected", repository, by)
            return await self._start(ask, repository, by)

    async def start(self, tenant: str, project: str, *, by: str | None = None, tx: Any = None) -> Job[None]:
        """Extract what is connected; ExtractionInProgress while the project has an active extraction."""
        async with self._within(tx) as ask:
            return await self._start(ask, await repositories.locked(ask, tenant, project), by)

    async def configure(
        self, tenant: str, project: str, given: Project, *, integration: str | None = None, by: str | None = None
    ) -> Repository:
        """Connect or change the repository without an extraction; not while one is active, which would not heed it."""
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            await self._refuse_active(await ask("repository_lock", tenant, project))
            repository = await repositories.connect(ask, tenant, project, given, integration)
            await self._note(ask, "repository.connected", repository, by)
            return repository

    async def disconnect(self, tenant: str, project: str, *, by: str | None = None) -> None:
        """The repository and all its results are gone; its jobs stay as they are."""
        async with self.hf.transaction() as tx:
            ask = Statements(self.hf, tx)
            repository = await repositories.locked(ask, tenant, project)
            await self._refuse_active(await ask("repository_lock", tenant, project))
            await ask("repository_delete", tenant, project)
            await self._note(ask, "repository.disconnected", repository, by)

    async def _note(self, ask: Statements, kind: str, repository: Repository, by: str | None) -> None:
        """Into the audit trail. A program that says for nobody that it acts has its own log."""
        if by is not None:
            await ask.note(repository.tenant, kind, by, project=repository.project, source=repository.source)

    async def _refuse_active(self, found: Sequence[Mapping[str, Any]]) -> None:
        repository = await repositories.seen(self.hf, Repository(**found[0])) if found else None
        if repository is not None and repository.job_id is not None and repository.status in ACTIVE:
            raise _in_progress(repository, repository.job_id)

    async def ask_for_machine(self) -> str | None:
        """After the commit. What goes wrong is a warning, and returned as one: the job is safe, and recovery asks again."""
        try:
            async with asyncio.timeout(MACHINE_SECONDS):
                await self._ask_machine(self.queue)
        except Exception as error:
            log.warning("No machine could be asked for: %s", redact(str(error)) or type(error).__name__)
            return "No machine could be asked for yet; the extraction is queued and starts as soon as there is one."
        return None

    async def _ask_orchestrator(self, _queue: str) -> None:
        """In the background; what its provider says is an event, and what `why` answers."""
        if self.hf.machines.configured:
            self.hf.machines.ask()

    @contextlib.asynccontextmanager
    async def _within(self, tx: Any) -> AsyncIterator[Statements]:
        if tx is not None:
            yield Statements(self.hf, tx)
            return
        async with self.hf.transaction() as own:
            yield Statements(self.hf, own)

    async def _start(self, ask: Statements, repository: Repository, by: str | None) -> Job[None]:
        unique = f"extraction:{repository.id}"
        options = self._task.options(
            tenant=repository.tenant, project=repository.project, unique=unique, enqueued_by=by, tx=ask.tx
        )
        job = await options.enqueue(repository.id)
        if not job.created:
            raise _in_progress(repository, job.id)
        await ask("repository_queue", repository.id, job.id)
        await ask("run_insert", repository.id, job.id)
        await self._note(ask, "extraction.started", repository, by)
        return job

    async def get(self, tenant: str, project: str) -> Repository:
        async with self.hf.transaction() as tx:
            found = await repositories.get(Statements(self.hf, tx), tenant, project)
        return await repositories.up_to_date(self.hf, found)

    async def list(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Repository]:
        """By project; `cursor` is that of the last one seen."""
        async with self.hf.transaction() as tx:
            rows = await Statements(self.hf, tx)("repository_list", tenant, cursor, checked_limit(limit))
        return [await repositories.up_to_date(self.hf, Repository(**row)) for row in rows]

    async def organizations(self, *, cursor: str | None = None, limit: int = 50) -> dict[str, int]:
        """For the service role: those that have repositories, by name, with how many; `cursor` is the last one seen."""
        async with self.hf.transaction() as tx:
            rows = await Statements(self.hf, tx)("repository_tenants", cursor, checked_limit(limit))
        return {row["tenant"]: row["count"] for row in rows}

    async def results(self, tenant: str, project: str) -> Results:
        """The newest of each kind, with the difference to the run before."""
        repository = await self.get(tenant, project)
        return await read_results(self.hf, repository)

    async def overview(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> Sequence[Overview]:
        """The organization's projects with status and numbers; `cursor` is the name of the last one seen."""
        return await reading.overview(self.hf, tenant, cursor=cursor, limit=limit)

    async def summary(self, tenant: str, project: str) -> Summary:
        """All about the newest result but the rows: numbers, what was not scanned, the difference to the run before."""
        return await reading.summary(self.hf, await self.get(tenant, project))

    async def page(self, tenant: str, project: str, kind: ListedKind, **which: Any) -> Page:
        """Rows of one kind; `search`, `severity`, `cursor` and `limit` say which."""
        return await reading.page(self.hf, await self.get(tenant, project), kind, **which)

    async def export(self, tenant: str, project: str, format: Literal["json", "sarif", "sbom"]) -> bytes:
        """All rows of the newest result as one file."""
        results = await self.results(tenant, project)
        if format == "sbom":
            return await asyncio.to_thread(results.as_sbom)
        return await asyncio.to_thread(lambda: encoded(results.as_sarif() if format == "sarif" else results.as_json()))

    async def health(self, tenant: str | None = None) -> Health:
        return await read_health(self.hf, self.options, self.queue, tenant)

    async def runs(self, tenant: str, project: str, *, before: int | None = None, limit: int = 50) -> Sequence[RunRow]:
        """Newest first; `before` is the number of the last one seen."""
        return await read_runs(self.hf, await self.get(tenant, project), before, checked_limit(limit))

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
            raise _in_progress(repository, repository.job_id)
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
            context = ExtractionContext(
                repository.as_project(), self.options, sign_in=lambda: self._credentials(repository), keeper=keeper
            )
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
            if not begun or begun[0]["tenant"] != run.tenant:
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


def _router() -> Any:
    from holdfast.extraction.routes import router  # only where the API is served: a worker needs no FastAPI

    return router


def _integrations_router() -> Any:
    from holdfast.extraction.integration_routes import router

    return router


def _page_groups() -> list[Pages]:
    from holdfast.extraction import integration_pages, page_actions, pages

    return [pages.pages, page_actions.pages, integration_pages.pages]


def _in_progress(repository: Repository, job_id: str) -> ExtractionInProgress:
    where = f"{repository.tenant}/{repository.project}"
    return ExtractionInProgress(
        f"An extraction of {where} is already in progress; wait for its end or cancel it.", job_id=job_id
    )


def _json(outcomes: Mapping[str, Outcome]) -> str:
    return msgspec.json.encode(dict(outcomes)).decode()
