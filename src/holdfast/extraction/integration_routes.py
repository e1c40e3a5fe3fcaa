"""/api/organizations/{org}/integrations: how an organization's code is reached. For admins; no token is ever answered."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from holdfast.extraction.route_models import (
    ExtractionDep,
    IntegrationPage,
    IntegrationToken,
    NewIntegration,
    ShownIntegration,
    named,
)
from holdfast.web.extending import (
    Act,
    CallerDep,
    CursorQuery,
    LimitQuery,
    OrganizationDep,
    answers,
    guarded_router,
    link,
    reply,
    require,
)

AT = "/organizations/{org}/integrations"


router = guarded_router("extraction")


@router.get(AT, summary="List integrations", response_model=IntegrationPage, responses=answers(404))
async def listed(
    org: OrganizationDep, caller: CallerDep, extraction: ExtractionDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.MANAGE_PROJECTS)
    after = None if cursor is None else named(cursor)
    found = await extraction.integrations.list(org, cursor=after, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].id if len(found) == limit else None})


@router.post(
    AT,
    summary="Connect a code host",
    status_code=201,
    response_model=ShownIntegration,
    responses={**answers(404, 409), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
async def create(
    request: Request, org: OrganizationDep, body: NewIntegration, caller: CallerDep, extraction: ExtractionDep
) -> Response:
    """With a token; or, for the service role alone, with the id of an installation: anybody could guess such a number."""
    require(caller, Act.MANAGE_PROJECTS if body.installation_id is None else Act.OPERATE)
    given = body.model_dump(exclude={"provider"})
    made = await extraction.integrations.create(org, body.provider, **given, by=caller.actor)
    return reply(made, 201, {"Location": link(request, f"/organizations/{org}/integrations/{made.id}")})


@router.get(f"{AT}/{{integration_id}}", summary="An integration", response_model=ShownIntegration, responses=answers(404))
async def get(org: OrganizationDep, integration_id: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    require(caller, Act.MANAGE_PROJECTS)
    return reply(await extraction.integrations.get(org, named(integration_id)))


@router.put(
    f"{AT}/{{integration_id}}/token",
    summary="Replace the token",
    response_model=ShownIntegration,
    responses=answers(404, 409),
)
async def set_token(
    org: OrganizationDep, integration_id: str, body: IntegrationToken, caller: CallerDep, extraction: ExtractionDep
) -> Response:
    """From the next run on."""
    require(caller, Act.MANAGE_PROJECTS)
    return reply(await extraction.integrations.set_token(org, named(integration_id), body.token, by=caller.actor))


@router.delete(
    f"{AT}/{{integration_id}}",
    summary="Remove an integration",
    status_code=204,
    response_class=Response,
    responses=answers(404, 409),
)
async def remove(org: OrganizationDep, integration_id: str, caller: CallerDep, extraction: ExtractionDep) -> Response:
    """Not while a project uses it."""
    require(caller, Act.MANAGE_PROJECTS)
    await extraction.integrations.remove(org, named(integration_id), by=caller.actor)
    return Response(status_code=204)
