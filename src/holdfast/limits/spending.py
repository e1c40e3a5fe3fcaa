"""What runs spend: written at once and beside the run, so that it is on record whatever becomes of the run."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from holdfast.errors import StorageError
from holdfast.limits.budget import add, checked_cents, checked_kind, look, notice
from holdfast.store.protocol import Claimed, Transaction

log = logging.getLogger("holdfast")

T = TypeVar("T")

SETTLE_SECONDS = 30.0
"""A run's end waits so long for what it spent to be written; the writing goes on after that."""
PAUSE_SECONDS_MAX = 5.0
REMEMBERED_SECONDS = 86_400.0
"""For so long a database may be away after a commit whose answer got lost."""


class Platform(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]: ...


class Spent:
    """What `spend` returns. Awaiting it is for who wants the money on record before the next line."""

    __slots__ = ("_written",)

    def __init__(self, written: Future[None]) -> None:
        self._written = written

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.shield(asyncio.wrap_future(self._written)).__await__()


class Spending:
    """Of all runs in this process."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.pending: dict[Future[None], str] = {}
        """What is not written yet, by which run. Changed in single steps: a finalizer that spends may interrupt any of them."""

    def spend(self, claimed: Claimed, cents: float, kind: str) -> Spent:
        """In async code it returns at once; elsewhere when it is written."""
        amount, kind = checked_cents("cents", cents), checked_kind(kind)
        written = self._platform.submit(self._write(claimed, amount, kind))
        self.pending[written] = claimed.run_id
        written.add_done_callback(lambda done: self.pending.pop(done, None))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            written.result()
        return Spent(written)

    async def settle(self, run_id: str) -> None:
        """Before a run's outcome is written: so that nobody sees it ended and its money missing."""
        if waiting := self._of(run_id):
            await asyncio.wait([asyncio.wrap_future(one) for one in waiting], timeout=SETTLE_SECONDS)

    def settle_here(self, run_id: str) -> None:
        """The same in a process without a loop."""
        wait(self._of(run_id), SETTLE_SECONDS)

    def _of(self, run_id: str) -> list[Future[None]]:
        return [written for written, run in list(self.pending.items()) if run == run_id]

    async def _write(self, claimed: Claimed, cents: float, kind: str) -> None:
        try:
            reserved, spent = await self._record_until_kept(claimed, cents, kind)
        except asyncio.CancelledError:
            log.error("%g cents (%s) spent by job %s may not be on record: Holdfast was closed.", cents, kind, claimed.id)
            raise
        if reserved and spent - cents <= reserved < spent:
            log.warning(
                "Job %s (%s) has spent %g cents (%s), and its task's budget_max says %g; raise it, or parallel runs overshoot.",
                claimed.id, claimed.task, spent, kind, reserved,
            )  # fmt: skip

    async def _record_until_kept(self, claimed: Claimed, cents: float, kind: str) -> tuple[float, float]:
        """Whatever the database says: to drop the money is never right."""
        pause, key = 0.2, f"spend:{uuid.uuid4().hex}"
        while True:
            try:
                return await self._record(key, claimed, cents, kind)
            except StorageError as error:
                log.warning("%g cents (%s) spent by job %s wait for the database: %s", cents, kind, claimed.id, error)
            await asyncio.sleep(pause)
            pause = min(PAUSE_SECONDS_MAX, pause * 2)

    async def _record(self, key: str, claimed: Claimed, cents: float, kind: str) -> tuple[float, float]:
        """What the run had reserved, and what it has spent in all. Money of a run that has lost its job counts, and is marked:
        it was spent, and nobody but the run itself could have told."""
        who = claimed.tenant or ""
        async with self._platform.transaction() as tx:
            if not await tx.shared("budget_once", key, claimed.tenant, REMEMBERED_SECONDS):
                return 0.0, 0.0  # it is on record, and the answer got lost
            late = 0.0 if await tx.shared("budget_held", claimed.id, claimed.run_id) else cents
            cap = await look(tx, who, kind)
            row = await add(tx, cap, spent=cents, late=late)
            run = (await tx.shared("budget_spend", claimed.run_id, kind, claimed.id, who, cents, late))[0]
            await notice(tx, cap, row)
        return run["reserved"], run["spent"]
