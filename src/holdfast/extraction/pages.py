"""Pages of the dashboard about extractions: connected projects, what was found in each, its runs and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import InvalidOption, NotFound
from holdfast.extraction.integrations import Integration
from holdfast.extraction.reading import LISTED, ListedKind, Overview, Summary
from holdfast.extraction.repositories import ACTIVE, Repository
from holdfast.extraction.results import RunRow
from holdfast.extraction.sql import NAME
from holdfast.pages import Nav, Page, Pages

PER_PAGE = 50
RUNS_SHOWN = 5
HINTS_MAX = 20
NAME_CHARS_MAX = 200
NUMBER_DIGITS_MAX = 9
SEVERITIES = ("critical", "high", "medium", "low", "info", "unknown")
TITLES = {
    "vulnerabilities": "Vulnerabilities",
    "dependencies": "Dependencies",
    "findings": "Code findings",
    "secrets": "Secrets",
}
CHANGES = {
    "vulnerabilities": ("new", "fixed"),
    "dependencies": ("added", "removed"),
    "findings": ("new", "resolved"),
    "secrets": ("new", "no longer found"),
}
"""What has come since the run before, and what has gone."""
STATES = {"queued": "queued", "extracting": "running", "ready": "completed", "error": "failed", "cancelled": "cancelled"}
"""The status of a repository -> the shape and colour of a job in the same state."""
SAID = {
    "extracting": "Queued: the extraction starts as soon as a worker is free.",
    "no_machine": "Queued. No machine could be asked for yet; the extraction starts as soon as there is one.",
    "disconnected": "Disconnected; its results are gone, its jobs stay.",
}

ENTRY = Nav("Repositories", "/extraction", "read_projects", "Extraction")
pages = Pages(NAME, templates="holdfast.extraction", nav=[ENTRY], said=SAID)


class ShownRun(msgspec.Struct):
    """A run in one line; what it ended as, the newest one's job knows best."""

    row: RunRow
    status: str
    seconds: float | None
    gaps: list[str]
    """What its steps did only in part, or not at all."""


# -- helpers -----------------------------------------------------------------------------------------------------------


def application(page: Page) -> Any:
    """The Extraction that serves here. Any: it names these pages, so they cannot name it."""
    return page.hf.extensions[NAME].application


async def choose(page: Page) -> Any:
    """For the service role, which has to say which organization is meant."""
    after = page.query.get("after")
    found = await application(page).organizations(cursor=None if after is None else project_named(after), limit=PER_PAGE + 1)
    shown = list(found.items())[:PER_PAGE]
    return page.render("extraction/choose.html", shown=shown, after=shown[-1][0] if len(found) > PER_PAGE else None)


def project_named(asked: str) -> str:
    """A name that nothing can have is one that is not there."""
    if not 0 < len(asked) <= NAME_CHARS_MAX or not asked.isprintable():
        raise NotFound("There is no such project.")
    return asked


async def _integration_of(page: Page, repository: Repository) -> Integration | None:
    if repository.integration_id is None:
        return None
    found: Integration = await application(page).integrations.get(repository.tenant, repository.integration_id)
    return found


async def selectable(page: Page, repository: Repository | None) -> list[Integration]:
    """For admins all, which they alone may list; for others the one that is in use, so that saving keeps it."""
    if page.may("manage_projects"):
        listed: list[Integration] = await application(page).integrations.list(page.tenant_named(), limit=PER_PAGE * 4)
        return listed
    used = await _integration_of(page, repository) if repository is not None else None
    return [] if used is None else [used]


def _render(page: Page, template: str, summary: Summary, tab: str, **values: Any) -> Any:
    """A page of one project: all have the same head."""
    return page.render(
        f"extraction/{template}.html",
        summary=summary,
        repository=summary.repository,
        tab=tab,
        titles=TITLES,
        states=STATES,
        active=summary.repository.status in ACTIVE,
        **values,
    )


async def _summary(page: Page) -> Summary:
    found: Summary = await application(page).summary(page.tenant_named(), project_named(page.query.get("id", "")))
    return found


async def _runs(page: Page, repository: Repository, before: int | None, limit: int) -> Sequence[RunRow]:
    found: Sequence[RunRow] = await application(page).runs(repository.tenant, repository.project, before=before, limit=limit)
    return found


def _shown(run: RunRow, repository: Repository) -> ShownRun:
    newest = run.job_id == repository.job_id
    status = STATES.get(repository.status, "idle") if newest else _ended_as(run)
    partly = [one for one in run.outcomes.values() if one["status"] != "ok" and run.error_code is None]
    gaps = [reason for one in partly for reason in (one.get("reasons") or [one["message"]])]
    return ShownRun(run, status, _seconds(run.started_at, run.finished_at), gaps)


def _ended_as(run: RunRow) -> str:
    if run.finished_at is None:
        return "cancelled"  # while it waited: no step has ever said anything
    return "completed" if run.error_code is None else "cancelled" if "cancel" in run.error_code else "failed"


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else (end - begin).total_seconds()


# -- reading -----------------------------------------------------------------------------------------------------------


@pages.get("/extraction", "read_projects")
async def list_projects(page: Page) -> Any:
    if page.tenant is None:
        return await choose(page)
    cursor = page.query.get("cursor")
    after = None if cursor is None else project_named(cursor)
    found: list[Overview] = await application(page).overview(page.tenant, cursor=after, limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return page.render(
        "extraction/projects.html",
        projects=shown,
        next_cursor=shown[-1].repository.project if len(found) > PER_PAGE else None,
        states=STATES,
        severities=SEVERITIES,
        integrations=await selectable(page, None) if page.may("connect_repository") else [],
        health=await application(page).health(page.tenant),
    )


@pages.get("/extraction/project", "read_projects")
async def show(page: Page) -> Any:
    summary = await _summary(page)
    runs = [_shown(run, summary.repository) for run in await _runs(page, summary.repository, None, RUNS_SHOWN)]
    gaps = {kind: summary.not_scanned[kind] for kind in TITLES if kind in summary.not_scanned}
    said = runs[0].gaps if runs and not runs[0].row.error_code else []
    hints = [one for one in said if one not in gaps.values()][:HINTS_MAX]
    given = {"severities": SEVERITIES, "changes": CHANGES, "gaps": gaps, "hints": hints}
    return _render(page, "project", summary, "", runs=runs, **given)


@pages.get("/extraction/rows", "read_projects")
async def rows(page: Page) -> Any:
    kind, severity = _kind(page.query.get("kind", "")), page.query.get("severity")
    if severity is not None and severity not in SEVERITIES:
        raise InvalidOption(f"severity= must be one of {', '.join(SEVERITIES)}.")
    summary = await _summary(page)
    where = summary.repository
    found = await application(page).page(
        where.tenant,
        where.project,
        kind,
        search=page.query.get("q"),
        severity=severity,
        cursor=page.query.get("cursor"),
        limit=PER_PAGE,
    )
    given = {"severities": SEVERITIES, "severity": severity, "search": page.query.get("q", "")}
    return _render(page, "rows", summary, kind, kind=kind, found=found, scan=summary.scans.get(kind), **given)


def _kind(asked: str) -> ListedKind:
    for kind in LISTED:
        if kind == asked:
            return kind
    raise NotFound("There is no such kind of result.")


@pages.get("/extraction/runs", "read_projects")
async def list_runs(page: Page) -> Any:
    asked = page.query.get("before", "")
    if asked and (not asked.isdecimal() or len(asked) > NUMBER_DIGITS_MAX):
        raise InvalidOption("before= must be the number of a run.")
    summary = await _summary(page)
    found = await _runs(page, summary.repository, int(asked) if asked else None, PER_PAGE + 1)
    shown = [_shown(run, summary.repository) for run in found[:PER_PAGE]]
    before = shown[-1].row.number if len(found) > PER_PAGE else None
    return _render(page, "runs", summary, "runs", runs=shown, next_before=before)


@pages.get("/extraction/settings", "read_projects")
async def settings(page: Page) -> Any:
    summary = await _summary(page)
    offered = await selectable(page, summary.repository) if page.may("connect_repository") else []
    used = await _integration_of(page, summary.repository) if page.may("connect_repository") else None
    return _render(page, "settings", summary, "settings", integrations=offered, used=used)
