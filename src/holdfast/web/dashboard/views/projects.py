"""Projects of an organization: parts of its work, with their newest jobs."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.store.protocol import JobFilter
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.rows import row
from holdfast.web.dashboard.views.organization import GROUP, choose

PER_PAGE = 50
JOBS_SHOWN = 10

pages = Pages("projects", nav=[Nav("Projects", "/projects", "read_projects", GROUP)])


@pages.get("/projects", "read_projects")
async def list_projects(page: PageRequest) -> Any:
    if page.tenant is None:
        return await choose(page)
    found = await page.hf.projects.list(page.tenant, cursor=page.query.get("cursor"), limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return page.render("projects.html", projects=shown, next_cursor=shown[-1].id if len(found) > PER_PAGE else None)


@pages.get("/projects/show", "read_projects")
async def show(page: PageRequest) -> Any:
    project = await page.hf.projects.get(page.tenant_named(), page.query.get("id", ""))
    where = JobFilter(tenant=page.tenant, project=project.id)
    jobs = await page.hf.store.job_list(where, cursor=None, limit=JOBS_SHOWN)
    return page.render("project.html", project=project, rows=[row(page, job) for job in jobs])


@pages.post("/projects/create", "manage_projects")
async def create(page: PageRequest) -> Any:
    form = await page.form()
    if not form.get("id"):
        raise InvalidOption("A project needs an id, such as web.")
    made = await page.hf.projects.create(page.tenant_named(), form.get("id"), name=form.get("name") or None, by=page.actor)
    return page.redirect("/projects/show", "added", id=made.id)


@pages.post("/projects/rename", "manage_projects")
async def rename(page: PageRequest) -> Any:
    form = await page.form()
    found = await page.hf.projects.rename(page.tenant_named(), form.get("id"), form.get("name"), by=page.actor)
    return page.redirect("/projects/show", "saved", id=found.id)


@pages.post("/projects/remove", "manage_projects")
async def remove(page: PageRequest) -> Any:
    tenant = page.tenant_named()
    project = await page.hf.projects.get(tenant, (await page.form()).get("id"))
    sentence = f"Removes the project {project.name} ({project.id}) of {tenant}. Its jobs stay as they are."
    question = await page.confirmed("Remove 1 project?", sentence, button="Remove the project", danger=True)
    if question is not None:
        return question
    await page.hf.projects.remove(tenant, project.id, by=page.actor)
    return page.redirect("/projects", "removed")
