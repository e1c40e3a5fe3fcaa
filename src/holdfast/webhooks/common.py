"""What the parts of webhooks ask of the Holdfast they belong to, and the names that they share."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.job import Job
from holdfast.settings import Settings
from holdfast.store.protocol import Store, Transaction
from holdfast.task import JobSpec, Task

if TYPE_CHECKING:
    from holdfast.clock import DatabaseClock
    from holdfast.outbox import Outbox

T = TypeVar("T")

DELIVER = "holdfast:deliver"
"""The task that delivers one message to one endpoint; two indexes of the schema know it by this name."""
QUEUE = "webhooks"
OLD_SECRET_SECONDS = 86_400.0


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> DatabaseClock: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]: ...

    def task_named(self, name: str) -> Task[..., Any]: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...

    async def get(self, job_id: str) -> Job[Any]: ...

    async def retry(self, job_id: str, *, by: str | None = None) -> Job[Any]: ...

    async def enqueue_jobs(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]: ...

    def enqueue_jobs_sync(self, jobs: Sequence[JobSpec[Any]], tx: Any) -> list[Job[Any]]: ...
