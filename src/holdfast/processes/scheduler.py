"""Keeps the schedules and ends the batches: a loop beside workers, reapers and servers. Any number may run at once.

While nothing falls due it asks one small question per wake-up and sleeps until the next tick, at most `LOOK_SECONDS`; where
there is neither schedule nor open batch, `REST_SECONDS`. Times are the database's: what it says how long to wait is slept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.batch import end_batches
from holdfast.errors import HoldfastError, StorageError
from holdfast.finish import one_line
from holdfast.people.common import note
from holdfast.schedule import Platform as SchedulePlatform
from holdfast.schedule import Schedules, spec_of
from holdfast.store.protocol import Transaction
from holdfast.ticks import When, decide

log = logging.getLogger("holdfast")

DUE_PER_LOOK = 200
LOOK_SECONDS = 60.0
REST_SECONDS = 300.0
AGAIN_SECONDS = 5.0
"""After something went wrong, and where a tick is left to others."""
STRANGE_SECONDS = 60.0
"""How long a tick waits for a program that knows its task, before it is given up."""
WAKE_SECONDS = 1.0
"""Wake-ups that come faster than this share a look."""
STIR_SECONDS = 5.0
"""The same for those that do not say what has happened: on SQLite every commit of another process is one."""
BATCH_SECONDS = (0.2, 2.0, 15.0)
"""Between two looks at open batches: right after the last job that ran here, while jobs run here, and while nothing happens."""


class Platform(SchedulePlatform, Protocol):
    @property
    def schedules(self) -> Schedules: ...


class Agenda(msgspec.Struct, frozen=True):
    """What one look found out."""

    seconds: float | None
    """Until the next tick; None: there is no schedule."""
    batches: bool
    """Whether batches are open."""


class Scheduler:
    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._store = platform.store
        self._stopping = False
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._warned: set[tuple[str, str]] = set()
        self._stir: asyncio.TimerHandle | None = None
        self._batch_pause = BATCH_SECONDS[0]
        self.batches_open = False

    # -- life ----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def heard(self, what: str) -> None:
        """A wake-up of the store, from any thread: somebody has set a schedule, or made a batch."""
        if what in ("", "schedule", "batch") and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set if what else self._stirred)

    def _stirred(self) -> None:
        if self._stir is None and self._loop is not None:
            self._stir = self._loop.call_later(STIR_SECONDS, self._wake.set)

    def job_ended(self, *, last: bool) -> None:
        """Perhaps the last one of a batch; `last`: no other runs here."""
        pause = BATCH_SECONDS[0 if last else 1]
        if pause < self._batch_pause:
            self._batch_pause = pause
            self._wake.set()

    async def run(self) -> None:
        """Until stopped. Nothing that goes wrong ends it."""
        self._loop = asyncio.get_running_loop()
        declared = False
        while not self._stopping:
            pause = AGAIN_SECONDS
            try:
                if not declared:
                    await self._platform.schedules.declare_all()
                    declared = True
                pause = await self.one_pass()
            except StorageError as error:
                log.warning("The scheduler could not look, it does again in %g s: %s", pause, error)
            except Exception:
                log.exception("The scheduler's pass failed, the next one comes in %g s", pause)
            await self._sleep(pause)

    async def run_listening(self) -> None:
        """The same with wake-ups of its own, for processes that have no worker."""
        unlisten = await self._store.listen(self.heard)
        try:
            await self.run()
        finally:
            await unlisten()

    async def _sleep(self, seconds: float) -> None:
        """A wake-up shortens it, but not below WAKE_SECONDS."""
        assert self._loop is not None
        began = self._loop.time()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        left = min(seconds, WAKE_SECONDS) - (self._loop.time() - began)
        if left > 0 and not self._stopping:
            await asyncio.sleep(min(left, self._batch_pause) if self.batches_open else left)
        self._wake.clear()
        if self._stir is not None:
            self._stir.cancel()
            self._stir = None

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def one_pass(self) -> float:
        """Do what is due; how many seconds until there may be more."""
        agenda = await self._look()
        self.batches_open = agenda.batches
        pause = REST_SECONDS if agenda.seconds is None else min(LOOK_SECONDS, max(0.0, agenda.seconds))
        if not self._platform.tasks:
            pause = LOOK_SECONDS  # a program without tasks keeps no schedule, and spoils none
        elif agenda.seconds is not None and agenda.seconds <= 0:
            pause = await self._keep_due()
        if agenda.batches:
            ended = await end_batches(self._store)
            pause = min(pause, self._next_batch_look(bool(ended)))
        return pause

    async def _look(self) -> Agenda:
        (row,) = await self._store.shared("agenda_look")
        return Agenda(None if row["seconds"] is None else float(row["seconds"]), bool(row["batches"]))

    def _next_batch_look(self, ended: bool) -> float:
        pause = BATCH_SECONDS[0] if ended else self._batch_pause
        self._batch_pause = min(BATCH_SECONDS[-1], pause * 2)
        return pause * (0.75 + random.random() / 2)  # many processes look in turns, not together

    async def _keep_due(self) -> float:
        rows = await self._store.shared("schedule_due", DUE_PER_LOOK)
        left = 0
        for row in rows:
            try:
                left += not await self._keep(row)
            except StorageError:
                raise
            except Exception:
                log.exception("The schedule %s could not be kept; the others go on", row["name"])
                left += 1
        return AGAIN_SECONDS if left == len(rows) and rows else 0.0

    async def _keep(self, row: Mapping[str, Any]) -> bool:
        """One tick; whether this moved it on, or somebody else has."""
        when = When(row["cron"], row["seconds"], row["tz"])
        verdict = decide(when, row["missed"], row["next_at"], row["now_at"])
        strange = self._strange(row)
        if strange is not None:
            if (row["now_at"] - row["next_at"]).total_seconds() < STRANGE_SECONDS:
                return False  # perhaps another program knows it
            await self._give_up(row, verdict.next_at, strange)
        elif not verdict.fires:
            await self._move_on(row, verdict.next_at)
        else:
            try:
                await self._fire(row, verdict.next_at)
            except StorageError:
                raise
            except HoldfastError as refused:  # arguments that no longer fit, a full queue: its own affair
                await self._give_up(row, verdict.next_at, f"{refused.code}: {one_line(refused)}")
        return True

    def _strange(self, row: Mapping[str, Any]) -> str | None:
        """Why this program cannot keep it."""
        if row["declared"] and (row["tenant"] or "", row["name"]) not in self._platform.schedules.declared:
            return "not_declared: no running program has it in its code any more; remove it, or start one that has."
        if row["task"] not in self._platform.tasks:
            return f"task_unknown: no running program knows the task {row['task']}; start one, or remove the schedule."
        return None

    async def _fire(self, row: Mapping[str, Any], next_at: datetime) -> None:
        task, args = self._platform.tasks[row["task"]], msgspec.json.decode(row["args"])
        spec = spec_of(task, args, row["name"], row["tenant"], tick=row["next_at"])
        async with self._platform.transaction() as tx:
            if await _advance(tx, row, next_at, row["next_at"], None):
                (job,) = await self._platform.enqueue_jobs([spec], tx)
                await tx.shared("schedule_made", row["tenant"] or "", row["name"], job.id, row["next_at"])

    async def _move_on(self, row: Mapping[str, Any], next_at: datetime) -> None:
        """Missed, and not to be made up for."""
        async with self._platform.transaction() as tx:
            if await _advance(tx, row, next_at, None, row["error"]):
                log.warning("The schedule %s missed its tick of %s and goes on at %s", row["name"], row["next_at"], next_at)

    async def _give_up(self, row: Mapping[str, Any], next_at: datetime, why: str) -> None:
        which = (row["tenant"] or "", row["name"])
        if which not in self._warned:
            self._warned.add(which)
            log.warning("The schedule %s made no job: %s", row["name"], why)
        async with self._platform.transaction() as tx:
            if await _advance(tx, row, next_at, None, why) and row["error"] != why:
                await note(tx, row["tenant"], "schedule.failed", None, schedule=row["name"], error=why)


async def _advance(
    tx: Transaction, row: Mapping[str, Any], next_at: datetime, kept: datetime | None, error: str | None
) -> bool:
    which = row["tenant"] or "", row["name"], row["revision"]
    return bool(await tx.shared("schedule_advance", *which, next_at, kept, error))
