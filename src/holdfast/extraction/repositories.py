"""Which repository a project is connected to, and how its newest extraction is doing."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast import Holdfast, Job, State
from holdfast.addresses import ascii_host, is_public
from holdfast.errors import InvalidOption, JobNotFound, NotFound
from holdfast.extraction.context import Project
from holdfast.extraction.errors import NoRepository
from holdfast.extraction.sql import Statements

RepositoryStatus = Literal["idle", "queued", "extracting", "ready", "error", "cancelled"]
TEXTS = ("source", "branch", "path", "name", "provider")
TEXT_CHARS_MAX = 2000
ACTIVE = ("queued", "extracting")
STATUS_OF: Mapping[State, RepositoryStatus] = {
    State.QUEUED: "queued",
    State.RUNNING: "extracting",
    State.COMPLETED: "ready",
    State.FAILED: "error",
    State.CANCELLED: "cancelled",
}


class Repository(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    tenant: str
    project: str
    provider: str
    source: str
    full_name: str
    branch: str | None
    path: str
    integration_id: str | None
    status: RepositoryStatus
    job_id: str | None
    run_id: str | None
    created_at: datetime
    updated_at: datetime

    def as_project(self) -> Project:
        """As the steps of the pipeline see it."""
        return Project(
            id=self.id, source=self.source, branch=self.branch, path=self.path, name=self.full_name, provider=self.provider
        )


async def connect(ask: Statements, tenant: str, project: str, given: Project, integration_id: str | None) -> Repository:
    """A project's one repository: made, or changed. Its status is that of its newest extraction."""
    _check(tenant, project, given)
    if integration_id is not None:
        held = await ask("integration_hold", tenant, integration_id) if integration_id.isprintable() else []
        if not held:
            raise NotFound(f"{tenant} has no such integration; connect it first.")
        if host_of(given.source) != held[0]["host"]:
            raise InvalidOption(f"This integration is for {held[0]['host']}, and the repository lies elsewhere.")
    made = await ask(
        "repository_connect",
        uuid.uuid4().hex,
        tenant,
        project,
        given.shown_provider,
        given.source,
        given.shown_name,
        given.branch,
        given.path,
        integration_id,
    )
    return Repository(**made[0])


def _check(tenant: str, project: str, given: Project) -> None:
    texts = {"tenant": tenant, "project": project, **{name: getattr(given, name) or "" for name in TEXTS}}
    for name, text in texts.items():
        if len(text) > TEXT_CHARS_MAX or not text.isprintable():
            raise InvalidOption(f"{name} must be at most {TEXT_CHARS_MAX} characters that can be printed.")
    if not (tenant and project and given.source):
        raise InvalidOption("tenant, project and source must not be empty.")
    if given.is_address and not host_of(given.source):
        raise InvalidOption("The address of a repository must name a host.")
    if given.is_address and "@" in given.source.partition("://")[2].partition("/")[0]:
        raise InvalidOption("The address of a repository must not hold a user name or token; connect an integration instead.")
    if ".." in PurePosixPath(given.path).parts:
        raise InvalidOption("The package path must lie in the repository.")


def check_for_strangers(given: Project, hosts_allowed: Collection[str]) -> None:
    """What somebody may name who does not sit at this machine. Names are looked up, and their addresses judged, at each run."""
    if not given.source.startswith("https://") or " " in given.source or not host_of(given.source):
        raise InvalidOption("The address of a repository must begin with https://.")
    host = ascii_host(urlsplit(given.source).hostname or "")
    if is_allowed(host, hosts_allowed):
        return
    try:
        public = is_public(ipaddress.ip_address(host))
    except ValueError:
        public = host != "localhost" and not host.endswith((".localhost", ".local", ".internal"))
    if not public:
        raise InvalidOption(f"{host:.100} is a private address; an operator may add it to the hosts that are allowed.")


def is_allowed(host: str, hosts_allowed: Collection[str]) -> bool:
    """`host` as `ascii_host` gives it; those that are allowed as the operator writes them."""
    for allowed in hosts_allowed:
        with suppress(ValueError):
            if ascii_host(allowed) == host:
                return True
    return False


def host_of(source: str) -> str:
    """With the port, where it is not the usual one; empty where it cannot be told."""
    try:
        parts = urlsplit(source)
        host, port = ascii_host(parts.hostname or ""), parts.port
    except ValueError:
        return ""
    return host if not host or port in (None, 443) else f"{host}:{port}"


async def locked(ask: Statements, tenant: str, project: str) -> Repository:
    return _one(await ask("repository_lock", tenant, project), tenant, project)


async def get(ask: Statements, tenant: str, project: str) -> Repository:
    return _one(await ask("repository_get", tenant, project), tenant, project)


async def looked_at(ask: Statements, tenant: str, project: str) -> Repository:
    """Until the end of the transaction nobody changes the project's results."""
    return _one(await ask("repository_look", tenant, project), tenant, project)


def _one(found: list[dict[str, Any]], tenant: str, project: str) -> Repository:
    if not found:
        raise NoRepository(f"{tenant} has no project {project!r} with a repository; connect one first.")
    return Repository(**found[0])


async def up_to_date(hf: Holdfast, repository: Repository) -> Repository:
    """As `seen`, and kept so."""
    found = await seen(hf, repository)
    if found.status != repository.status:
        async with hf.transaction() as tx:
            await Statements(hf, tx)("repository_settle", repository.id, repository.job_id, found.status)
    return found


async def seen(hf: Holdfast, repository: Repository) -> Repository:
    """The status follows the job: also one that was cancelled while it waited, given up by the reaper, or retried."""
    if repository.job_id is None:
        return repository
    return msgspec.structs.replace(repository, status=await _status_of_job(hf, repository, repository.job_id))


async def _status_of_job(hf: Holdfast, repository: Repository, job_id: str) -> RepositoryStatus:
    try:
        job: Job[Any] = await hf.get(job_id)
    except JobNotFound:  # forgotten after its retention
        return "error" if repository.status in ACTIVE else repository.status
    return STATUS_OF[job.state]
