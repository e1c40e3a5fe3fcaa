"""/api/projects: the parts of an organization's work."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from holdfast.store.protocol import Transaction
from holdfast.web.access import Act, require
from holdfast.web.api.asked import CursorQuery, LimitQuery, TenantQuery, tenant_named
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.models import Cursor, Name, Taken
from holdfast.web.problems import answers
from holdfast.web.routing import CallerDep, HoldfastDep, guarded_router, link, once_by_itself, reply

router = guarded_router("projects")


class Project(BaseModel):
    tenant: str
    id: str
    name: str
    created_at: datetime
    created_by: str | None


class NewProject(Taken):
    id: Name = Field(description="What jobs carry as `project`.")
    name: Name | None = Field(None, description="Null: as the id.")


class ProjectChange(Taken):
    name: Name


class ProjectPage(BaseModel):
    items: list[Project]
    next_cursor: Cursor


@router.get("/projects", summary="List projects, by id", response_model=ProjectPage, responses=answers(404))
async def list_projects(
    caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> Response:
    require(caller, Act.READ_PROJECTS)
    found = await hf.projects.list(tenant_named(caller, tenant), cursor=cursor, limit=limit)
    return reply({"items": found, "next_cursor": found[-1].id if len(found) == limit else None})


@router.post(
    "/projects",
    summary="Create a project",
    status_code=201,
    response_model=Project,
    responses={**answers(404, 409), 201: {"headers": {"Location": {"schema": {"type": "string"}}}}},
)
@once_by_itself
async def create_project(
    request: Request, body: NewProject, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    require(caller, Act.MANAGE_PROJECTS)
    organization = tenant_named(caller, tenant)

    async def work(tx: Transaction | None) -> Response:
        made = await hf.projects.create(organization, body.id, name=body.name, by=caller.actor, tx=tx)
        return reply(made, 201, {"Location": link(request, f"/projects/{quote(made.id, safe='')}")})

    return await once_in_transaction(hf, request, work, tenant=caller.tenant, caller=caller.actor)


@router.get("/projects/{project_id:path}", summary="A project", response_model=Project, responses=answers(404))
async def get_project(project_id: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    require(caller, Act.READ_PROJECTS)
    return reply(await hf.projects.get(tenant_named(caller, tenant), project_id))


@router.patch("/projects/{project_id:path}", summary="Rename a project", response_model=Project, responses=answers(404))
async def rename_project(
    project_id: str, body: ProjectChange, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None
) -> Response:
    require(caller, Act.MANAGE_PROJECTS)
    return reply(await hf.projects.rename(tenant_named(caller, tenant), project_id, body.name, by=caller.actor))


@router.delete(
    "/projects/{project_id:path}", summary="Remove a project", status_code=204, response_class=Response, responses=answers(404)
)
async def remove_project(project_id: str, caller: CallerDep, hf: HoldfastDep, tenant: TenantQuery = None) -> Response:
    """Its jobs stay as they are."""
    require(caller, Act.MANAGE_PROJECTS)
    await hf.projects.remove(tenant_named(caller, tenant), project_id, by=caller.actor)
    return Response(status_code=204)
