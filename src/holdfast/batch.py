"""Batches: many jobs that belong together, their progress, and a job that is made once all of them have ended.

A job does not pay for its batch: it carries a name, and nothing is counted while it runs. Whoever keeps the schedules asks the
index whether an open batch has a job left that is queued or running; when none has, one guarded statement ends the batch and
makes the last job, in one transaction (docs/decisions/011-schedules-and-batches.md).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.enqueue import Door, plan
from holdfast.errors import InvalidOption, NotFound, StorageError, StorageUnavailable
from holdfast.ids import new_job_id
from holdfast.job import State
from holdfast.people.common import checked_limit, checked_name, checked_name_or_none
from holdfast.settings import Settings
from holdfast.store.protocol import CallerStatement, NewJob, Store, Transaction
from holdfast.task import JobSpec, Task
from holdfast.tx import caller_of

log = logging.getLogger("holdfast")

T = TypeVar("T")

COUNT_MAX = 100_000
"""How many jobs of a batch are counted."""
CHUNK = 5_000
"""How many jobs one statement inserts."""
ENDS_PER_LOOK = 100


class Batch(msgspec.Struct, kw_only=True):
    """A batch as it was when it was read. `await batch.refresh()` reads it again."""

    id: str
    tenant: str | None
    total: int
    then_id: str | None
    """The id of the job that is made when all have ended; until then there is no such job."""
    created_at: datetime
    created_by: str | None
    ended_at: datetime | None
    counts: dict[str, int] = {}
    """How many are in which state, counted over 100,000 jobs at the most. Those that retention has removed are in none."""
    _batches: Any = None

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def progress(self) -> float:
        """From 0 to 1: the share of jobs that have ended, whatever their end."""
        left = self.counts.get("queued", 0) + self.counts.get("running", 0)
        return 1.0 if not self.total else max(0.0, 1 - left / self.total)

    def as_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "_batches"}
        plain: dict[str, Any] = msgspec.to_builtins({**fields, "progress": self.progress})
        return plain

    async def refresh(self) -> Batch:
        found: Batch = await self._batches.get(self.id)
        return found


class Platform(Protocol):
    @property
    def store(self) -> Store: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def failed_hook(self) -> Task[..., Any] | None: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def check_jobs(self, jobs: Sequence[JobSpec[Any]]) -> None: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Batches:
    """`hf.batches`; `hf.batch` makes one."""

    def __init__(self, platform: Platform, door: Door) -> None:
        self._platform = platform
        self._door = door

    async def create(
        self,
        jobs: Sequence[JobSpec[Any]],
        *,
        then: JobSpec[Any] | None = None,
        tenant: str | None = None,
        by: str | None = None,
        tx: Any = None,
    ) -> Batch:
        """All jobs or none, in one transaction. A job whose unique key meets an active one stays outside of the batch."""
        members, last = self._checked(jobs, then, tenant)
        batch_id, by = new_job_id(), checked_name_or_none("by", by)
        if tx is None:
            async with self._platform.transaction() as own:
                await self._write(batch_id, members, last, tenant, by, own)
            return await self.get(batch_id)
        total = await self._write(batch_id, members, last, tenant, by, tx)
        return self._just_made(batch_id, total, last, tenant, by)

    def create_sync(
        self,
        jobs: Sequence[JobSpec[Any]],
        *,
        then: JobSpec[Any] | None = None,
        tenant: str | None = None,
        by: str | None = None,
        tx: Any = None,
    ) -> Batch:
        if tx is None:
            return self._platform.call_sync(self.create(jobs, then=then, tenant=tenant, by=by))
        members, last = self._checked(jobs, then, tenant)
        batch_id, by, total = new_job_id(), checked_name_or_none("by", by), 0
        for first in range(0, len(members), CHUNK):
            made = self._door.enqueue_in_callers_thread(members[first : first + CHUNK], tx, batch=batch_id)
            total += sum(job.created for job in made)
        caller_of(tx).run(self._row(batch_id, total, last, tenant, by))
        return self._just_made(batch_id, total, last, tenant, by)

    async def _write(
        self, batch_id: str, members: list[JobSpec[Any]], last: NewJob | None, tenant: str | None, by: str | None, tx: Any
    ) -> int:
        total = 0
        for first in range(0, len(members), CHUNK):
            made = await self._door.enqueue(members[first : first + CHUNK], tx, batch=batch_id)
            total += sum(job.created for job in made)
        await caller_of(tx).run_async(self._row(batch_id, total, last, tenant, by))
        return total

    def _row(self, batch_id: str, total: int, last: NewJob | None, tenant: str | None, by: str | None) -> CallerStatement:
        if last is not None:
            last.meta = {**(last.meta or {}), "batch": batch_id}
        job = None if last is None else msgspec.json.encode(last).decode()
        return self._platform.store.shared_statement("batch_insert", batch_id, tenant, total, last and last.id, job, by)

    def _just_made(self, batch_id: str, total: int, last: NewJob | None, tenant: str | None, by: str | None) -> Batch:
        """Of a transaction that only its owner can read yet."""
        return Batch(
            id=batch_id,
            tenant=tenant,
            total=total,
            then_id=None if last is None else last.id,
            created_at=datetime.now(UTC),
            created_by=by,
            ended_at=None,
            counts={"queued": total},
            _batches=self,
        )

    def _checked(
        self, jobs: Sequence[JobSpec[Any]], then: JobSpec[Any] | None, tenant: str | None
    ) -> tuple[list[JobSpec[Any]], NewJob | None]:
        self._platform.check_jobs([*jobs, *([] if then is None else [then])])
        checked_name_or_none("tenant", tenant)
        members = [_of_tenant(job, tenant) for job in jobs]
        if then is None:
            return members, None
        return members, plan([_of_tenant(then, tenant)], self._platform.settings, self._platform.failed_hook)[0]

    async def get(self, batch_id: str, *, tenant: str | None = None) -> Batch:
        """`tenant`: only if it is this tenant's."""
        store = self._platform.store
        found = await store.shared("batch_get", checked_name("batch", batch_id), checked_name_or_none("tenant", tenant))
        if not found:
            raise NotFound(f"There is no batch {batch_id!r:.60}.")
        counted = await store.shared("batch_counts", batch_id, COUNT_MAX)
        counts = {state.value: 0 for state in State} | {row["state"]: row["n"] for row in counted}
        return Batch(**found[0], counts=counts, _batches=self)

    def get_sync(self, batch_id: str, *, tenant: str | None = None) -> Batch:
        return self._platform.call_sync(self.get(batch_id, tenant=tenant))

    async def list(self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 50) -> list[Batch]:
        """Newest first, without their counts."""
        checked_name_or_none("tenant", tenant)
        checked_name_or_none("cursor", cursor)
        found = await self._platform.store.shared("batch_list", tenant, cursor, checked_limit(limit))
        return [Batch(**row, _batches=self) for row in found]


def _of_tenant(job: JobSpec[Any], tenant: str | None) -> JobSpec[Any]:
    if tenant is None or job.options.tenant == tenant:
        return job
    if job.options.tenant is not None:
        raise InvalidOption(f"A batch of {tenant} cannot take a job of {job.options.tenant}: {job.task.name}.")
    return replace(job, options=replace(job.options, tenant=tenant))


async def end_batches(store: Store) -> list[str]:
    """End those whose jobs have all ended, and make their last jobs. Any number may do this at once: each ends once."""
    ended = []
    for row in await store.shared("batch_all_ended", ENDS_PER_LOOK):
        try:
            if await _end(store, row["id"]):
                ended.append(row["id"])
        except StorageUnavailable:
            raise
        except StorageError as error:  # the others must not wait for it
            log.warning("The batch %s could not be ended: %s", row["id"], error)
    return ended


async def _end(store: Store, batch_id: str) -> bool:
    async with store.transaction() as tx:
        taken = await tx.shared("batch_end", batch_id)
        if taken and taken[0]["then_job"] is not None:
            job = msgspec.json.decode(taken[0]["then_job"], type=NewJob)
            await caller_of(tx).run_async(store.insert_statement([job]))
    return bool(taken)
