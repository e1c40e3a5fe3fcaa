"""What the API takes and answers, for OpenAPI. The names are those of the Python API."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from holdfast.job import Hold, State

Name = Annotated[str, Field(min_length=1, max_length=200)]
Key = Annotated[str, Field(min_length=1, max_length=500)]
Cursor = Annotated[str | None, Field(description="For the next page; null: this is the last one.")]
Status = Literal["queued", "scheduled", "retrying", "running", "cancelling", "completed", "failed", "cancelled"]


UNKNOWN_FIELDS_MAX = 100
"""Pydantic makes an error for each unknown field. A body holds 80,000, which would block the event loop for half a second."""


class Taken(BaseModel):
    """The base of request bodies: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_unknown_fields(cls, body: Any) -> Any:
        if isinstance(body, dict) and len(body) > len(cls.model_fields) + UNKNOWN_FIELDS_MAX:
            raise PydanticCustomError("too_many_fields", "Too many fields. Send at most those that the reference lists.")
        return body


class NewJob(Taken):
    task: Name
    args: dict[str, Any] = Field({}, description="As the task's signature says; checked at once.")
    tenant: Name | None = Field(None, description="For the service role; others enqueue for their own.")
    project: Name | None = None
    priority: int | None = Field(None, ge=-(2**31), le=2**31 - 1)
    delay: float | None = Field(None, ge=0, description="Seconds.")
    run_at: datetime | None = Field(None, description="Excludes `delay`.")
    unique: Key | None = None
    on_duplicate: Literal["return", "raise"] = Field("return", description="What to do while a job with this key is active.")
    order: Key | None = None
    tags: list[Annotated[str, Field(min_length=1, max_length=100)]] | None = Field(None, max_length=50)
    meta: dict[str, Any] | None = None
    max_attempts: int | None = Field(None, ge=1, le=1000)
    queue: Name | None = Field(None, description="For the service role; else the task's own.")


class AcceptedJob(BaseModel):
    id: str
    run_id: str
    state: State
    queue: str
    task: str
    tenant: str | None
    created: bool = Field(description="False: a job with this unique key is active already, and this is that job.")


class Job(BaseModel):
    id: str
    queue: str
    task: str
    state: State
    status: Status = Field(description="The state as people read it.")
    run_id: str
    run_no: int
    attempt: int
    max_attempts: int
    priority: int
    tenant: str | None
    project: str | None
    actor: str | None
    args: Any = Field(description="For admins; null for others, and where the task keeps them private.")
    result: Any
    hold: Hold | None
    run_at: datetime | None
    unique_key: str | None
    order_key: str | None
    locked_by: str | None = Field(description="The worker. For admins.")
    machine_id: str | None = Field(description="For admins.")
    lease_expires_at: datetime | None
    last_heartbeat_at: datetime | None
    deadline: datetime | None
    expected_duration: float | None
    stage: str | None
    progress: float | None
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    error_code: str | None
    error_message: str | None
    tags: list[str]
    meta: dict[str, Any]
    enqueued_by: str | None
    trace_context: str | None
    batch: str | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime | None


class Run(BaseModel):
    run_no: int
    run_id: str
    attempt: int
    outcome: str = Field(description="running, completed, failed, cancelled, snoozed, released, or lost.")
    worker: str | None = Field(description="For admins.")
    machine_id: str | None = Field(description="For admins.")
    stage: str | None
    error_code: str | None
    error_message: str | None
    started_at: datetime | None
    finished_at: datetime | None


class JobWithRuns(Job):
    runs: list[Run] = Field(description="Newest first.")


class JobPage(BaseModel):
    items: list[Job]
    next_cursor: Cursor


class RunList(BaseModel):
    items: list[Run]


class LogLine(BaseModel):
    no: int
    level: str
    message: str
    step: str | None
    duration_ms: float | None
    metadata: dict[str, Any] | None
    created_at: datetime | None


class LogPage(BaseModel):
    items: list[LogLine]
    next_after: int | None = Field(description="`after` for the next page; null: there was nothing more.")


class Event(BaseModel):
    id: int
    job_id: str | None
    tenant: str | None
    type: str
    actor: str | None
    data: dict[str, Any]
    at: datetime


class EventList(BaseModel):
    items: list[Event] = Field(description="Oldest first.")


class EventPage(BaseModel):
    items: list[Event]
    next_cursor: Cursor


class Why(BaseModel):
    code: str
    sentence: str
    details: dict[str, Any]


class JobChange(BaseModel):
    """One event of the stream of jobs."""

    id: str
    task: str
    queue: str
    tenant: str | None
    state: State
    status: Status
    attempt: int
    stage: str | None
    progress: float | None
    error_code: str | None
    updated_at: datetime


class JobFilter(Taken):
    """Every field that is set must match."""

    state: State | None = None
    queue: Name | None = None
    task: Name | None = None
    tenant: Name | None = None
    project: Name | None = None
    tag: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    after: datetime | None = None
    before: datetime | None = None
    batch: Name | None = None


class BulkAct(Taken):
    where: JobFilter
    confirm: int | None = Field(None, ge=0, description="The count that was answered without it; only then is anything done.")


class BulkResult(BaseModel):
    """Without `confirm`, or where it is not the count: nothing was done."""

    count: int
    capped: bool = Field(description="There are more than were counted; each call acts on as many as `count` says.")
    done: int = Field(description="How many were changed.")
    skipped: int = Field(description="How many no longer allowed it.")


class Tenant(BaseModel):
    id: str
    plan: str
    limit: int
    queue_depth: int
    running: int
    paused_at: datetime | None
    paused_by: str | None
    timezone: str = Field(description="By which its months are counted.")


class TenantLimits(Taken):
    """What is not mentioned stays; null: as the plan says."""

    plan: Name | None = None
    limit: int | None = Field(None, ge=0, le=2**31 - 1)
    queue_depth: int | None = Field(None, ge=0, le=2**31 - 1)
    timezone: Name | None = Field(None, description="Such as Europe/Paris; null: as it is.")


class Queue(BaseModel):
    name: str
    limit: int | None
    running: int
    paused_at: datetime | None
    paused_by: str | None


class LoadedQueue(BaseModel):
    name: str
    limit: int | None = Field(description="How many of its jobs may run at once.")
    paused_at: datetime | None
    paused_by: str | None = Field(description="For the service role.")
    waiting: int
    scheduled: int
    running: int
    oldest_wait_seconds: float | None


class QueueList(BaseModel):
    items: list[LoadedQueue]


class Worker(BaseModel):
    id: str
    host: str
    pid: int
    machine_id: str | None
    version: str
    queues: list[str]
    tasks: list[str]
    concurrency: int
    running: int
    draining: bool
    started_at: datetime | None
    last_seen_at: datetime | None


class WorkerList(BaseModel):
    items: list[Worker]
