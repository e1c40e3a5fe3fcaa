"""A job, its runs, its states, and the one table of legal moves. Pure: nothing here touches a database."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from holdfast import sealing

if TYPE_CHECKING:
    from holdfast.app import Holdfast

R = TypeVar("R", covariant=True)


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({State.COMPLETED, State.FAILED, State.CANCELLED})


class Move(NamedTuple):
    """One legal change of state. `fenced`: only whoever names the current run id may make it."""

    source: State
    target: State
    verb: str
    fenced: bool


MOVES = frozenset(
    {
        Move(State.QUEUED, State.RUNNING, "claim", False),
        Move(State.QUEUED, State.CANCELLED, "cancel", False),
        Move(State.RUNNING, State.COMPLETED, "complete", True),
        Move(State.RUNNING, State.QUEUED, "retry", True),
        Move(State.RUNNING, State.QUEUED, "snooze", True),
        Move(State.RUNNING, State.QUEUED, "release", True),
        Move(State.RUNNING, State.FAILED, "fail", True),
        Move(State.RUNNING, State.CANCELLED, "cancel", True),
        Move(State.RUNNING, State.QUEUED, "reap", False),
        Move(State.RUNNING, State.FAILED, "reap", False),
        Move(State.RUNNING, State.CANCELLED, "reap", False),
        Move(State.FAILED, State.QUEUED, "replay", False),
        Move(State.CANCELLED, State.QUEUED, "replay", False),
    }
)


class Hold(StrEnum):
    """Why a queued job cannot be claimed yet. A queued job without a hold is claimable."""

    TIME = "time"
    ORDER = "order"


class Job(msgspec.Struct, Generic[R], kw_only=True, weakref=True):
    """A job as it was when it was read. `await job.refresh()` reads it again, `await job.result()` waits for its end."""

    id: str
    queue: str
    task: str
    state: State
    run_id: str
    attempt: int = 0
    max_attempts: int = 1
    run_no: int = 0
    """Counts every claim, also over snoozes and manual retries, where `attempt` starts again."""
    priority: int = 0
    tenant: str | None = None
    project: str | None = None
    actor: str | None = None
    args: Any = None
    hold: Hold | None = None
    run_at: datetime | None = None
    unique_key: str | None = None
    order_key: str | None = None
    locked_by: str | None = None
    machine_id: str | None = None
    lease_expires_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    deadline: datetime | None = None
    expected_duration: float | None = None
    stage: str | None = None
    progress: float | None = None
    cancel_requested_at: datetime | None = None
    cancel_requested_by: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    output: Any = None
    """What the task returned."""
    tags: list[str] = []
    meta: dict[str, Any] = {}
    enqueued_by: str | None = None
    trace_context: str | None = None
    batch: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    created: bool = True
    """False when a unique key met a job that is still active, and this is that job."""
    _app: Any = None

    @property
    def status(self) -> str:
        """The state as people read it: a queued job may be *scheduled* or *retrying*, a running one *cancelling*."""
        return status_of(self)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, the field names of the HTTP API."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("_app", "created", "output")}
        fields["args"] = sealing.shown(self.args)
        plain: dict[str, Any] = msgspec.to_builtins({**fields, "status": self.status, "result": sealing.shown(self.output)})
        return plain

    async def result(self, timeout: float | None = None) -> R:
        """What the task returned, or raise JobFailed, JobCancelled, or ResultTimeout after `timeout` seconds."""
        value: R = await self._holdfast().wait_for_result(self.id, timeout=timeout)
        return value

    def result_sync(self, timeout: float | None = None) -> R:
        value: R = self._holdfast().wait_for_result_sync(self.id, timeout=timeout)
        return value

    async def refresh(self) -> Job[R]:
        return await self._holdfast().get(self.id)

    def _holdfast(self) -> Holdfast:
        if self._app is None:
            raise RuntimeError("this Job was not made by a Holdfast object")
        app: Holdfast = self._app
        return app


class Failure(msgspec.Struct, kw_only=True):
    """What an `on_failed` task is given: of the job that has failed for good."""

    job_id: str
    task: str
    queue: str
    tenant: str | None = None
    project: str | None = None
    attempts: int = 0
    error_code: str | None = None
    error_message: str | None = None


def status_of(job: Any) -> str:
    if job.state is State.QUEUED and job.hold is Hold.TIME:
        return "retrying" if job.attempt else "scheduled"
    if job.state is State.RUNNING and job.cancel_requested_at:
        return "cancelling"
    return str(job.state.value)


class Run(msgspec.Struct, kw_only=True):
    """One attempt at a job. The newest run lives on the job's own row; older ones in the history."""

    run_no: int
    run_id: str
    attempt: int
    outcome: str
    """`running`, `completed`, `failed`, `cancelled`, `snoozed`, `released`, `lost` (its worker died or hung)."""
    worker: str | None = None
    machine_id: str | None = None
    stage: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


def current_run_of(job: Job[Any]) -> Run | None:
    """The newest run lives on the job's row. A job that waits, or was cancelled while it waited, has nobody's name on it."""
    if job.locked_by is None:
        return None
    return Run(
        run_no=job.run_no,
        run_id=job.run_id,
        attempt=job.attempt,
        outcome=job.state.value,
        worker=job.locked_by,
        machine_id=job.machine_id,
        stage=job.stage,
        error_code=job.error_code,
        error_message=job.error_message,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


class Event(msgspec.Struct, kw_only=True):
    """Something unusual that happened to a job: a good job has none."""

    id: int
    job_id: str | None
    tenant: str | None
    type: str
    actor: str | None
    data: dict[str, Any]
    at: datetime


class LogLine(msgspec.Struct, kw_only=True):
    run_id: str
    no: int
    level: str
    message: str
    step: str | None = None
    duration_ms: float | None = None
    metadata: dict[str, Any] | None = None
    created_at: datetime | None = None
