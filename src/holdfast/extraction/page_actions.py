"""What the dashboard's pages about extractions do: connect, extract, cancel, retry, disconnect."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.extraction.context import Project
from holdfast.extraction.errors import ExtractionInProgress
from holdfast.extraction.pages import application, project_named
from holdfast.extraction.repositories import ACTIVE, Repository, check_for_strangers
from holdfast.pages import Page, Pages

PROJECT = "/extraction/project"

pages = Pages("extraction actions")


async def _repository(page: Page) -> Repository:
    asked = project_named((await page.form()).get("id"))
    found: Repository = await application(page).get(page.tenant_named(), asked)
    return found


def _busy(page: Page, project: str, job_id: str, status: int = 409) -> Any:
    """Not a failure: somebody was faster, and this is where to see how far it is."""
    return page.render("extraction/busy.html", status=status, project=project, job_id=job_id)


async def _begun(page: Page, project: str) -> Any:
    warning = await application(page).ask_for_machine()  # after the commit
    return page.redirect(PROJECT, "extracting" if warning is None else "no_machine", id=project)


def _where(repository: Repository) -> str:
    branch = f", branch {repository.branch}" if repository.branch else ""
    path = f", below {repository.path}" if repository.path else ""
    return f"{repository.source}{branch}{path}"


@pages.post("/extraction/connect", "connect_repository")
async def connect(page: Page) -> Any:
    """Connect a repository or change it, and extract it; without an extraction it is for admins."""
    form, tenant, extraction = await page.form(), page.tenant_named(), application(page)
    project, integration = form.get("id"), form.get("integration") or None
    if not 0 < len(project) <= 200 or not project.isprintable():
        raise InvalidOption("Give the project a name of at most 200 characters, such as shop.")
    given = Project(id="", source=form.get("source"), branch=form.get("branch") or None, path=form.get("path"))
    check_for_strangers(given, extraction.options.hosts_allowed)
    try:
        if form.get("verb") == "save":
            page.require("manage_projects")
            await extraction.configure(tenant, project, given, integration=integration, by=page.actor)
            return page.redirect("/extraction/settings", "saved", id=project)
        await extraction.connect(tenant, project, given, integration=integration, by=page.actor)
    except ExtractionInProgress as error:
        return _busy(page, project, error.job_id)
    return await _begun(page, project)


@pages.post("/extraction/start", "connect_repository")
async def start(page: Page) -> Any:
    repository = await _repository(page)
    if repository.job_id is not None and repository.status in ACTIVE:
        return _busy(page, repository.project, repository.job_id)
    question = await page.confirmed(
        f"Extract {repository.project}?",
        f"Clones {_where(repository)} and scans it again. The results of the last run stay until the new ones are there.",
        button="Extract it",
    )
    if question is not None:
        return question
    try:
        await application(page).start(repository.tenant, repository.project, by=page.actor)
    except ExtractionInProgress as error:
        return _busy(page, repository.project, error.job_id)
    return await _begun(page, repository.project)


@pages.post("/extraction/cancel", "cancel")
async def cancel(page: Page) -> Any:
    repository = await _repository(page)
    question = await page.confirmed(
        "Cancel 1 extraction?",
        f"Stops the extraction of {repository.project}. What earlier runs found stays.",
        button="Cancel the extraction",
        danger=True,
    )
    if question is not None:
        return question
    after = await application(page).cancel(repository.tenant, repository.project, by=page.actor)
    return page.redirect(PROJECT, "cancelled" if after.status == "cancelled" else "cancelling", id=repository.project)


@pages.post("/extraction/retry", "retry")
async def retry(page: Page) -> Any:
    repository = await _repository(page)
    question = await page.confirmed(
        "Retry 1 extraction?",
        f"Queues the newest extraction of {repository.project} again: {_where(repository)}.",
        button="Retry the extraction",
    )
    if question is not None:
        return question
    try:
        await application(page).retry(repository.tenant, repository.project, by=page.actor)
    except ExtractionInProgress as error:
        return _busy(page, repository.project, error.job_id)
    return await _begun(page, repository.project)


@pages.post("/extraction/disconnect", "manage_projects")
async def disconnect(page: Page) -> Any:
    repository = await _repository(page)
    question = await page.confirmed(
        "Disconnect 1 repository?",
        f"Removes {_where(repository)} from {repository.project}, with everything that was found in it. Its jobs stay.",
        button="Disconnect the repository",
        danger=True,
    )
    if question is not None:
        return question
    try:
        await application(page).disconnect(repository.tenant, repository.project, by=page.actor)
    except ExtractionInProgress as error:
        return _busy(page, repository.project, error.job_id)
    return page.redirect("/extraction", "disconnected")
