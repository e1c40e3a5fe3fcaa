"""/api/organizations/{org}/…: start, cancel and retry extractions, read what they found, and say where code comes from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Request
from starlette.responses import Response

from holdfast import Job
from holdfast.extraction.reading import SEARCH_CHARS_MAX, ListedKind
from holdfast.extraction.route_models import (
    ConnectedRepository,
    ExtractionDep,
    ExtractionHealth,
    ExtractionRunPage,
    ExtractionStart,
    NewExtraction,
    NewRepository,
    OverviewPage,
    ResultPage,
    ResultSummary,
    named,
)
from holdfast.web.extending import (
    Act,
    CallerDep,
    CursorQuery,
    HoldfastDep,
    LimitQuery,
    OrganizationDep,
    answers,
    guarded_router,
    link,
    once_by_itself,
    once_in_transaction,
    reply,
    require,
)

AT = "/organizations/{org}/projects/{project:path}"
CURSOR_CHARS_MAX = 10_000
Severity = Literal["critical", "high", "medium", "low", "info", "unknown"]
LOCATION: dict[int | str, dict[str, Any]] = {202: {"headers": {"Location": {"schema": {"type": "string"}}}}}
FORMATS = {
    "json": "application/json",
    "sarif": "application/sarif+json",
    "sbom": "application/vnd.cyclonedx+json",
}


router = guarded_router("extraction")


@router.post(
    f"{AT}/extraction",
    summary="Connect a repository, or use the connected one, and extract it",
    status_code=202,
    response_model=ExtractionStart,
    responses={**answers(404, 409), **LOCATION},
)
@once_by_itself
async def start(
    request: Request,
    org: OrganizationDep,
    project: str,
    caller: CallerDep,
    extraction: ExtractionDep,
    hf: HoldfastDep,
    body: NewExtraction | None = None,
) -> Response:
    """With `repository`: connects it first; all in one transaction. 409 while an extraction of the project is active."""
    require(caller, Act.CONNECT_REPOSITORY)
    name = named(project)
    given = None if body is None or body.repository is None else body.repository.given(extraction.options.hosts_allowed)

    async def work(tx: Any) -> Response:
        if given is None:
            job = await extraction.start(org, name, by=caller.actor, tx=tx)
        else:
            integration = body.repository.integration if body and body.repository else None
            job = await extraction.connect(org, name, given, integration=integration, by=caller.actor, tx=tx)
        return _begun(request, job, None)

    answer = await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor)
    warning = await extraction.ask_for_machine() if answer.status_code == 202 else None  # after the commit
    return answer if warning is None else _begun(request, await hf.get(answer.headers["Location"].rpartition("/")[2]), warning)


@router.post(
    f"{AT}/extraction/cancel",
    summary="Cancel the extraction",
    response_model=ConnectedRepository,
    responses=answers(404, 409),
)
async def cancel(org: OrganizationDep, project: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    require(caller, Act.CANCEL)
    return reply(await extraction.cancel(org, named(project), by=caller.actor))


@router.post(
    f"{AT}/extraction/retry",
    summary="Retry the newest extraction, which failed or was cancelled",
    status_code=202,
    response_model=ExtractionStart,
    responses={**answers(404, 409), **LOCATION},
)
async def retry(request: Request, org: OrganizationDep, project: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    require(caller, Act.RETRY)
    job = await extraction.retry(org, named(project), by=caller.actor)
    return _begun(request, job, await extraction.ask_for_machine())


@router.get(
    f"{AT}/extraction/runs",
    summary="Extractions of a project, newest first",
    response_model=ExtractionRunPage,
    responses=answers(404),
)
async def runs(
    org: OrganizationDep,
    project: str,
    caller: CallerDep,
    extraction: ExtractionDep,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="`next_before` of the page before.")] = None,
    limit: LimitQuery = 50,
) -> Response:
    """Their log lines are those of their jobs."""
    require(caller, Act.READ_PROJECTS)
    found = await extraction.runs(org, named(project), before=before, limit=limit)
    return reply({"items": found, "next_before": found[-1].number if len(found) == limit else None})


@router.get("/extraction/health", summary="How extractions are doing", response_model=ExtractionHealth)
async def health(caller: CallerDep, extraction: ExtractionDep) -> Response:
    """Of the caller's organization; of all, for the service role."""
    require(caller, Act.READ_JOBS)
    return reply(await extraction.health(caller.tenant))


@router.get(
    f"{AT}/extraction/result/export",
    summary="All that was found, as a file",
    response_class=Response,
    responses={**answers(404), 200: {"content": {kind: {} for kind in FORMATS.values()}}},
)
async def export(
    org: OrganizationDep,
    project: str,
    caller: CallerDep,
    extraction: ExtractionDep,
    format: Annotated[Literal["json", "sarif", "sbom"], Query()] = "json",
) -> Response:
    """CycloneDX 1.6, SARIF 2.1.0, or JSON. Lists that were not scanned are null in JSON."""
    require(caller, Act.READ_PROJECTS)
    body = await extraction.export(org, named(project), format)
    return Response(body, media_type=FORMATS[format], headers={"X-Content-Type-Options": "nosniff"})


@router.get(
    f"{AT}/extraction/result",
    summary="What the newest extraction found, in numbers",
    response_model=ResultSummary,
    responses=answers(404),
)
async def result(org: OrganizationDep, project: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    """What was not scanned has a reason and no number. The difference is to the run before that looked for the same."""
    require(caller, Act.READ_PROJECTS)
    return reply(await extraction.summary(org, named(project)))


@router.get(
    f"{AT}/extraction/result/{{kind}}", summary="The rows of one kind", response_model=ResultPage, responses=answers(404)
)
async def rows(
    org: OrganizationDep,
    project: str,
    kind: ListedKind,
    caller: CallerDep,
    extraction: ExtractionDep,
    q: Annotated[
        str | None, Query(min_length=1, max_length=SEARCH_CHARS_MAX, description="A part of a name, path, id or message.")
    ] = None,
    severity: Annotated[Severity | None, Query(description="Of vulnerabilities and findings.")] = None,
    cursor: Annotated[str | None, Query(max_length=CURSOR_CHARS_MAX, description="`next_cursor` of the page before.")] = None,
    limit: LimitQuery = 50,
) -> Response:
    """Worst first. Of a secret there is the place and the kind, never the secret."""
    require(caller, Act.READ_PROJECTS)
    found = await extraction.page(org, named(project), kind, search=q, severity=severity, cursor=cursor, limit=limit)
    return reply(found)


@router.get(
    "/organizations/{org}/repositories",
    summary="Connected projects with their status and numbers",
    response_model=OverviewPage,
    responses=answers(404),
)
async def overview(
    org: OrganizationDep, caller: CallerDep, extraction: ExtractionDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.READ_PROJECTS)
    after = None if cursor is None else named(cursor)
    found = await extraction.overview(org, cursor=after, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].repository.project if len(found) == limit else None})


@router.get(f"{AT}/repository", summary="A project's repository", response_model=ConnectedRepository, responses=answers(404))
async def get(org: OrganizationDep, project: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    require(caller, Act.READ_PROJECTS)
    return reply(await extraction.get(org, named(project)))


@router.put(
    f"{AT}/repository",
    summary="Connect or change a project's repository, without an extraction",
    response_model=ConnectedRepository,
    responses=answers(404, 409),
)
async def put(
    org: OrganizationDep, project: str, body: NewRepository, caller: CallerDep, extraction: ExtractionDep
) -> Response:
    require(caller, Act.MANAGE_PROJECTS)
    given = body.given(extraction.options.hosts_allowed)
    return reply(await extraction.configure(org, named(project), given, integration=body.integration, by=caller.actor))


@router.delete(
    f"{AT}/repository",
    summary="Disconnect a project's repository",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409),
)
async def remove(org: OrganizationDep, project: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    """With all results."""
    require(caller, Act.MANAGE_PROJECTS)
    await extraction.disconnect(org, named(project), by=caller.actor)
    return Response(status_code=204)


def _begun(request: Request, job: Job[Any], warning: str | None) -> Response:
    begun = {"job_id": job.id, "run_id": job.run_id, "status": "queued", "warning": warning}
    return reply(begun, 202, {"Location": link(request, f"/jobs/{job.id}")})
