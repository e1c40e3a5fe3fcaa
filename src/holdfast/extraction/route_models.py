"""What the routes of extractions take and answer, for OpenAPI."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import BaseModel, Field

from holdfast.errors import NotFound
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import Project
from holdfast.extraction.integrations import Provider
from holdfast.extraction.repositories import RepositoryStatus, check_for_strangers
from holdfast.web.extending import Cursor, HoldfastDep, Name, Taken

NAME_CHARS_MAX = 200


async def _extraction(hf: HoldfastDep) -> Extraction:
    return Extraction.of(hf)


ExtractionDep = Annotated[Extraction, Depends(_extraction)]
Text = Annotated[str, Field(max_length=2000)]


def named(project: str) -> str:
    """A name that nothing can have is one that is not there."""
    if not 0 < len(project) <= NAME_CHARS_MAX or not project.isprintable():
        raise NotFound("There is no such project.")
    return project


class NewRepository(Taken):
    source: Text = Field(
        min_length=1, description="An https address without credentials.", examples=["https://github.com/acme/shop"]
    )
    branch: Text | None = Field(None, min_length=1, description="Or a tag; null: the repository's default.")
    path: Text = Field("", description="Only the packages below this folder.")
    integration: Name | None = Field(None, description="How it is reached; null: it is public.")

    def given(self, hosts_allowed: Collection[str]) -> Project:
        project = Project(id="", source=self.source, branch=self.branch, path=self.path)
        check_for_strangers(project, hosts_allowed)
        return project


class NewExtraction(Taken):
    repository: NewRepository | None = Field(None, description="Null: the one that is connected.")


class ExtractionStart(BaseModel):
    job_id: str
    run_id: str
    status: RepositoryStatus
    warning: str | None = Field(
        description="Something to know, though the extraction is queued: no machine could be asked for."
    )


class ConnectedRepository(BaseModel):
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
    job_id: str | None = Field(description="The newest extraction.")
    run_id: str | None
    created_at: datetime
    updated_at: datetime


class CountedScan(BaseModel):
    scanned: bool
    reason: str | None = Field(description="Why it was not scanned.")
    count: int | None = Field(description="Null where it was not scanned: that is not 0.")


class ProjectOverview(BaseModel):
    repository: ConnectedRepository
    scans: dict[str, CountedScan]
    severities: dict[str, int]


class OverviewPage(BaseModel):
    items: list[ProjectOverview]
    next_cursor: Cursor


class ScanChange(BaseModel):
    to_run: int
    added: list[str] = Field(description="The first hundred.")
    added_count: int
    gone: list[str] = Field(description="The first hundred.")
    gone_count: int
    unchanged: int


class ScanResult(CountedScan):
    run: int
    job_id: str
    saved_at: datetime
    details: dict[str, Any] = Field(description="What must be known beside the number, such as the age of the advisories.")
    difference: ScanChange | None = Field(description="To the run before; null: there is none to compare with.")


class ResultSummary(BaseModel):
    repository: ConnectedRepository
    scans: dict[str, ScanResult]
    not_scanned: dict[str, str] = Field(description="Kind -> why.")
    severities: dict[str, int]
    pending_enrichment: int = Field(description="Dependencies that no registry has told of yet.")


class ResultPage(BaseModel):
    scanned: bool = Field(description="False: there are no rows because nobody has looked, for the `reason`.")
    reason: str | None
    items: list[dict[str, Any]]
    next_cursor: Cursor


class ExtractionRun(BaseModel):
    number: int
    job_id: str
    outcomes: dict[str, Any] = Field(description="How each step ended.")
    error_code: str | None
    error_message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class ExtractionRunPage(BaseModel):
    items: list[ExtractionRun]
    next_before: int | None = Field(description="`before` for the next page; null: this is the last one.")


class ExtractionHealth(BaseModel):
    status: Literal["ok", "degraded"]
    warnings: list[str]
    waiting: int
    scheduled: int
    running: int
    stuck: int
    oldest_wait_seconds: float | None
    advisories: dict[str, Any] | None = Field(description="Version and age in days, as this server sees them; null: none.")


class NewIntegration(Taken):
    provider: Provider
    host: Annotated[str, Field(max_length=255)] | None = Field(
        None, description="Null: the provider's own, such as github.com."
    )
    name: Text = ""
    token: Annotated[str, Field(max_length=4096)] | None = Field(None, description="Stored sealed, and never shown.")
    user_name: Text | None = Field(None, description="Where the host wants one with the token.")
    installation_id: Annotated[str, Field(max_length=20)] | None = Field(
        None, description="Of the GitHub App. For the service role, which knows whose it is."
    )


class IntegrationToken(Taken):
    token: Annotated[str, Field(min_length=1, max_length=4096)]


class ShownIntegration(BaseModel):
    id: str
    tenant: str
    provider: Provider
    host: str = Field(description="The token is sent to no other.")
    name: str
    user_name: str | None
    installation_id: str | None
    has_token: bool
    created_at: datetime
    created_by: str | None
    token_set_at: datetime | None


class IntegrationPage(BaseModel):
    items: list[ShownIntegration]
    next_cursor: Cursor
