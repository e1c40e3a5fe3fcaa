"""The reaper as a process: a pass each interval, for ever. Any number of them may run beside the workers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable

from holdfast.adopt.rescue import reap_adopted
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.prune import prune, prune_if_due
from holdfast.reap import ReapReport, reap, reap_dead
from holdfast.settings import Settings
from holdfast.store.protocol import Store

log = logging.getLogger("holdfast")

PRUNE_EVERY_PASSES = 10
LAST_PASS_SECONDS = 5.0


async def ended(*passes: asyncio.Task[None]) -> None:
    """Of those who were told to stop: what they are at has some seconds, and is cut short then. A database that has gone silent
    must not keep a process from ending, and undoes what was begun."""
    _, late = await asyncio.wait(passes, timeout=LAST_PASS_SECONDS)
    for one in late:
        one.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*passes)


async def _wait(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class Reaper:
    """`start_machines` asks for machines for jobs that nobody serves, and says how many came."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        interval: float | None = None,
        start_machines: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        self._store = store
        self._start_machines = start_machines
        self._settings = settings
        self._interval = interval or settings.reaper_interval
        self._stopping = asyncio.Event()
        self._wanted = asyncio.Event()
        self._database_was_away = False
        # Not the first pass: many workers that start together would all look for old rows at once.
        self._passes_until_prune = random.randint(1, PRUNE_EVERY_PASSES - 1)

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._stopping.set()
        self._wanted.set()

    def look_soon(self) -> None:
        """The next pass comes now."""
        self._wanted.set()

    async def run_in_a_worker(self) -> None:
        """Workers alone rescue the jobs of their dead neighbours. A new worker often takes the place of one that died, so it
        looks for dead ones at once. The first pass comes at a random moment, so that workers take turns."""
        try:
            await reap_dead(self._store, self._settings)
        except StorageError as error:
            log.warning("The look for dead workers failed, the next pass looks again: %s", error)
        await self._until_wanted(self._interval * random.random())
        await self.run()

    async def run(self) -> None:
        """Until stopped. Nothing that goes wrong in a pass ends it."""
        while not self._stopping.is_set():
            try:
                if self._database_was_away:
                    await self._let_the_living_report()
                await self.one_pass(prunes=self._passes_until_prune == 0, shared=True)
                self._passes_until_prune = (self._passes_until_prune - 1) % PRUNE_EVERY_PASSES
            except StorageError as error:
                self._database_was_away = self._database_was_away or isinstance(error, StorageUnavailable)
                log.warning("The reaper's pass failed, the next one comes in %g s: %s", self._interval, error)
            except Exception:
                log.exception("The reaper's pass failed, the next one comes in %g s", self._interval)
            await self._until_wanted(self._interval)

    async def _let_the_living_report(self) -> None:
        """While the database was away nobody could extend a lease. As soon as it answers, those who live have the time between
        two heartbeats to do so before their jobs are taken from them."""
        await self._store.worker_list()
        await self._pause(self._settings.heartbeat)
        self._database_was_away = False

    async def _pause(self, seconds: float) -> None:
        await _wait(seconds, self._stopping)

    async def _until_wanted(self, seconds: float) -> None:
        await _wait(seconds, self._wanted)
        self._wanted.clear()

    async def one_pass(self, *, prunes: bool = True, shared: bool = False) -> tuple[ReapReport, int]:
        """What was rescued, and how many old rows were deleted: of a reaper's passes only every tenth looks for those, and
        where the work is `shared` only if nobody else has done it lately."""
        report = await reap(self._store, self._settings, self._start_machines)
        report.adopted = await reap_adopted(self._store, self._settings)
        gone: dict[str, int] | None = None
        if prunes:
            await self._store.order_heal()
            gone = await (prune_if_due if shared else prune)(self._store, self._settings)
        return report, sum((gone or {}).values())
