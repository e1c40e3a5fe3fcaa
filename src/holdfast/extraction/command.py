"""`holdfast extract URL|PATH`: one extraction end to end on this machine, without an app or a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

import click
import msgspec

from holdfast import Holdfast, State
from holdfast.extraction import summary
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import Credentials, ExtractionContext, Options, Project
from holdfast.extraction.pipeline import steps_for
from holdfast.extraction.report import encoded, results_of, sarif_of
from holdfast.pipeline import Context, Outcome, Pipeline, StepFailed

FOUND = 10
"""Exit code: something at or above --fail-on was found."""
NOT_CHECKED = 11
"""Exit code: with --fail-on, vulnerabilities could not be looked for."""
ADVISORIES = "holdfast-advisories.db"
TOKENS = {
    "github.com": ("GITHUB_TOKEN", "x-access-token"),
    "gitlab.com": ("GITLAB_TOKEN", "oauth2"),
    "bitbucket.org": ("BITBUCKET_TOKEN", "x-token-auth"),
}
OWN_TOKEN = "HOLDFAST_GIT_TOKEN"
TENANT = "local"
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument("source", metavar="URL|PATH")
@click.option("--branch", metavar="NAME", help="Or a tag; the repository's default, unless told.")
@click.option("--path", default="", metavar="FOLDER", help="Only the packages below this folder of the repository.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.option("--sarif", "as_sarif", is_flag=True, help="Print what was found as SARIF 2.1.0.")
@click.option(
    "--fail-on",
    type=click.Choice(["critical", "high", "medium", "low"]),
    help=f"End with {FOUND} when something of this severity or a worse one was found.",
)
@click.option("--reports", metavar="FOLDER", help="Write the SBOM and all results there; s3://bucket/prefix works, too.")
@click.option(
    "--advisories",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="HOLDFAST_ADVISORIES",
    default=ADVISORIES,
    show_default=True,
    help="The file that `holdfast advisories update` writes.",
)
@click.option(
    "--profile",
    type=click.Choice(["generic", "research"]),
    default="generic",
    show_default=True,
    help="research: dep-scan also looks whether vulnerable code can be reached, for up to three hours.",
)
@click.option("--rules", type=click.Path(exists=True, path_type=Path), help="Semgrep rules of your own, a file or a folder.")
@click.pass_context
def extract(
    context: click.Context,
    source: str,
    branch: str | None,
    path: str,
    as_json: bool,
    as_sarif: bool,
    fail_on: str | None,
    reports: str | None,
    advisories: Path,
    profile: Literal["generic", "research"],
    rules: Path | None,
) -> int:
    """Extract dependencies, vulnerabilities, findings and secrets from a repository or a folder.

    Example: holdfast extract . --fail-on high
    """
    if as_json and as_sarif:
        raise click.UsageError("--json and --sarif exclude each other")
    address, credentials = credentials_for(source, os.environ)
    project = Project(id="local", source=address, branch=branch, path=path)
    given = Options.from_environment()
    options = msgspec.structs.replace(
        given, advisories=advisories, rules=rules or given.rules, storage=reports, trusted=True, registry=None, profile=profile
    )
    found = asyncio.run(_run(project, options, credentials, getattr(context.obj, "database", None)))
    if as_json or getattr(context.obj, "as_json", False):
        click.echo(encoded(results_of(found)))
    elif as_sarif:
        click.echo(encoded(sarif_of(found)))
    else:
        click.echo("\n".join(summary.lines_of(found)))
    return _verdict(found, fail_on)


def credentials_for(source: str, environment: Mapping[str, str]) -> tuple[str, Credentials | None]:
    """The address without what must not be stored, and the token: from the address itself, or from the environment."""
    if "://" not in source:
        return source, None
    parts = urlsplit(source)
    host = parts.hostname or ""
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    variable, user = TOKENS.get(host, (OWN_TOKEN, "git"))
    token = parts.password or environment.get(OWN_TOKEN) or environment.get(variable)
    if not token or (parts.scheme != "https" and host not in LOOPBACK):
        return address, None
    return address, Credentials(token, (parts.username if parts.password else None) or user)


def _verdict(found: ExtractionContext, fail_on: str | None) -> int:
    if fail_on is None:
        return 0
    count = summary.count_from(found, fail_on)
    if count:
        click.echo(f"{count} found of severity {fail_on} or worse.", err=True)
        return FOUND
    if found.vulnerabilities is None:
        click.echo(f"Vulnerabilities were not scanned, so --fail-on {fail_on} cannot pass.", err=True)
        return NOT_CHECKED
    return 0


class _Watched(Pipeline):
    """Keeps what its one run found."""

    context: ExtractionContext | None = None

    async def run(self, context: Context) -> Mapping[str, Outcome]:
        assert isinstance(context, ExtractionContext)
        self.context = context
        return await super().run(context)


def _project_name(project: Project) -> str:
    """In a database that is kept, each repository and folder is a project of its own."""
    name = project.shown_name if project.is_address else Path(project.source).resolve().name
    return name if name.isprintable() and name else TENANT


async def _given(credentials: Credentials | None) -> Credentials | None:
    return credentials


async def _run(project: Project, options: Options, credentials: Credentials | None, database: str | None) -> ExtractionContext:
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # the lines of the run's log say it already
    pipeline = _Watched(steps_for(options))
    async with _holdfast(database) as hf:
        # A queue of its own: in a shared database nobody else may take the job, nor we theirs.
        queue = f"extract-{uuid.uuid4().hex[:12]}"
        extraction = Extraction(hf, options, pipeline=pipeline, credentials=lambda _: _given(credentials), queue=queue)
        await hf.migrate()
        job = await extraction.connect(TENANT, _project_name(project), project)
        worker = asyncio.create_task(hf.run_worker(queues=[queue], concurrency=1, exit_when_idle=0.0, reap=False))
        try:
            await _show(hf, job.id, pipeline)
            await worker
        finally:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        ended = await hf.get(job.id)
    if ended.state is not State.COMPLETED or pipeline.context is None:
        raise StepFailed(f"Extraction failed: {ended.error_message or ended.status}", code=ended.error_code)
    return pipeline.context


async def _show(hf: Holdfast, job_id: str, pipeline: _Watched) -> None:
    """The first attempt alone: whoever sits here decides on the next one."""
    ended: set[str | None] = set()
    async for line in hf.follow(job_id, run_no=1):
        click.echo(summary.line_of(line), err=True)
        ended |= {line.step} if line.duration_ms is not None else set()
    # A job that completes in its own transaction may be faster than its last lines.
    for name, outcome in pipeline.context.outcomes.items() if pipeline.context else ():
        if name not in ended:
            click.echo(summary.line_of_outcome(outcome), err=True)


@contextlib.asynccontextmanager
async def _holdfast(database: str | None) -> AsyncIterator[Holdfast]:
    with tempfile.TemporaryDirectory(prefix="holdfast-extract-", ignore_cleanup_errors=True) as folder:
        hf = Holdfast(database or f"sqlite:///{folder}/jobs.db")
        try:
            yield hf
        finally:
            await hf.aclose()
