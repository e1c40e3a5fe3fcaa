"""The claimer of a worker: asks for as much as there is room for, and waits cleverly when there is nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Protocol

from holdfast.claim import Pace, Poll, QueueOrder, Rotation
from holdfast.errors import StorageError
from holdfast.settings import Settings
from holdfast.store.protocol import Beat, Claim, Claimed, Store

log = logging.getLogger("holdfast")

DATABASE_AWAY_SECONDS = 60.0
"""An idle-exit worker without a database gives up after this long, so that its machine stops."""
CLAIM_RETRY_SECONDS_MAX = 5.0
OUTCOMES_LOOK_SECONDS = 0.2


class Body(Protocol):
    """The worker, as its claimer sees it."""

    id: str
    store: Store
    settings: Settings

    @property
    def busy_slots(self) -> int: ...
    @property
    def waiting_jobs(self) -> int: ...
    @property
    def outcomes_are_stuck(self) -> bool: ...
    def is_busy(self) -> bool: ...
    def offer(self, jobs: list[Claimed]) -> None: ...
    def give_back_unknown(self, leases: list[Beat]) -> None: ...
    async def announce(self, *, draining: bool) -> None: ...
    async def before_leaving(self) -> None: ...
    def stop(self, reason: str = "stopped") -> None: ...


class Claimer:
    def __init__(
        self,
        body: Body,
        *,
        machine_id: str | None,
        order: QueueOrder,
        tasks: list[str],
        concurrency: int,
        exit_when_idle: float | None,
    ) -> None:
        self.pace = Pace(concurrency)
        self.rotation = Rotation(order.names)
        self._body = body
        self._machine_id = machine_id
        self._order = order
        self._tasks = tasks
        self._concurrency = concurrency
        self._exit_when_idle = exit_when_idle
        self._poll = Poll(body.settings.poll_busy, body.settings.poll_idle)
        self._woken = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = False
        self._in_doubt = False
        """A claim was never answered: it may have been committed all the same."""

    def stop(self) -> None:
        self._stopping = True
        self.wake()
        self.has_room()

    def wake(self) -> None:
        self._woken.set()

    def has_room(self) -> None:
        self._room.set()

    def heard(self, queue: str, tenant: str | None) -> None:
        """There may be work in this queue, and for this tenant if one is named."""
        if queue in self.rotation.cursors:
            if tenant is None:
                self.rotation.look_everywhere()
            else:
                self.rotation.look_at(tenant)
            self._woken.set()

    def look_everywhere(self) -> None:
        self.rotation.look_everywhere()
        self._woken.set()

    def freed(self, queue: str, tenant: str | None) -> None:
        """One of our jobs has ended, so its tenant and its queue have room for one more."""
        if self.rotation.freed(queue, tenant):
            self._woken.set()

    async def run(self) -> None:
        """Until told to stop."""
        loop = asyncio.get_running_loop()
        idle_since = loop.time()
        away_since: float | None = None
        pause = 0.0
        while not self._stopping:
            room = self.pace.room(self._body.busy_slots, self._body.waiting_jobs)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            self._woken.clear()
            if self._body.outcomes_are_stuck:
                # What has run and cannot be written down may have to run again: it must not become more and more.
                await self._wait(OUTCOMES_LOOK_SECONDS)
                continue
            try:
                await self._give_back_what_is_in_doubt()
                claim, again = await self._claim(room)
                away_since, pause = None, 0.0
            except StorageError as error:
                away_since = away_since or loop.time()
                pause = min(CLAIM_RETRY_SECONDS_MAX, pause * 2 or 0.2)
                log.warning("No database to claim from, trying again in %.1f s: %s", pause, error)
                if self._gives_up(loop.time() - away_since):
                    self._body.stop("database_away")
                await self._wait_after_a_failure(pause * random.uniform(0.8, 1.2))
                continue
            if claim.jobs:
                idle_since = loop.time()
                self._poll.found_work()
                self._body.offer(claim.jobs)
            elif self._body.is_busy():
                idle_since = loop.time()
            elif again is None and self._exit_when_idle is not None and loop.time() - idle_since >= self._exit_when_idle:
                if await self._nothing_left():
                    self._body.stop("idle")
                continue
            if again != 0:
                await self._wait(self._how_long(claim, again, loop.time() - idle_since))
        with contextlib.suppress(StorageError):
            await self._give_back_what_is_in_doubt()

    async def _give_back_what_is_in_doubt(self) -> None:
        """Jobs that nobody here knows of would wait for their lease to end."""
        if self._in_doubt:
            self._body.give_back_unknown(await self._body.store.lease_list(self._body.id))
            self._in_doubt = False

    async def _claim(self, room: int) -> tuple[Claim, float | None]:
        """What was found, and in how many seconds it is worth asking again by ourselves."""
        hops, hints = self.rotation.next_question()
        try:
            claim = await self._body.store.job_claim(
                worker=self._body.id,
                machine=self._machine_id,
                queues=self._order.next(),
                tasks=self._tasks,
                limit=room,
                cursors=self.rotation.cursors,
                hops=hops,
                hints=hints,
            )
        except BaseException:
            self._in_doubt = True
            self.rotation.unanswered()
            raise
        return claim, self.rotation.answered(claim, room, hops)

    def _gives_up(self, seconds_away: float) -> bool:
        return self._exit_when_idle is not None and not self._body.is_busy() and seconds_away >= DATABASE_AWAY_SECONDS

    def _how_long(self, claim: Claim, again: float | None, idle: float) -> float:
        seconds = self._poll.seconds(self._body.store.listening and not self.rotation.held)
        if again is not None:
            seconds = min(seconds, again)
        if claim.next_due_seconds is not None:
            seconds = min(seconds, claim.next_due_seconds + 0.001)
        if self._exit_when_idle is not None and not self._body.is_busy():
            seconds = min(seconds, max(0.001, self._exit_when_idle - idle))
        return seconds

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            self.rotation.look_everywhere()

    async def _wait_after_a_failure(self, seconds: float) -> None:
        """A fifth of the time whoever wakes us: that may come of the failure itself, and we would ask without a pause. An
        SQLite file on a full disk, for one, is opened anew after each failure, and looks changed then."""
        await asyncio.sleep(seconds / 5)
        await self._wait(seconds * 4 / 5)

    async def _nothing_left(self) -> bool:
        """Write, then read: say that we are going, then look once more. An enqueuer commits its job first and only then
        counts workers that are not going, so either we see the job or it sees us go."""
        self.rotation.look_everywhere()
        try:
            await self._body.announce(draining=True)
            await self._body.before_leaving()
            claim, again = await self._claim(self._concurrency)
            while again == 0 and not claim.jobs:
                claim, again = await self._claim(self._concurrency)
        except StorageError:
            with contextlib.suppress(StorageError):
                await self._body.announce(draining=False)
            return False
        if not claim.jobs and again is None:
            return True
        self._body.offer(claim.jobs)
        with contextlib.suppress(StorageError):
            await self._body.announce(draining=False)
        return False
