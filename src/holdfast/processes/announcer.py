"""Tells webhooks of jobs that have ended: soon after one of this worker's own, and now and then for those ended elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast")

INTERVAL_SECONDS = 15.0

Announce = Callable[[], Awaitable[int]]


class Announcer:
    def __init__(self, announce: Announce, done: Callable[[], None]) -> None:
        self._announce = announce
        self._done = done
        self._poked = asyncio.Event()
        self.pending = False

    def poke(self) -> None:
        self.pending = True
        self._poked.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._poked.clear()
            try:
                await self._announce()
            except HoldfastError as error:
                log.warning("Ends of jobs wait to be told to webhooks: %s", error)
            if self.pending and not self._poked.is_set():
                self.pending = False
                self._done()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_SECONDS):
                    await self._poked.wait()
