"""Runs on a machine: what kept a job waiting for one is told by the first lines of its run, since while it was queued it had no
log yet; and whose time the machine's time was is counted."""

from __future__ import annotations

import contextlib
import time

from holdfast.errors import StorageError
from holdfast.run import Attempt, run_attempt
from holdfast.shares import Shares
from holdfast.store.protocol import Completion, Departure, Store

WAITED_SECONDS = 1.0
"""A job that waited for less has nothing to tell, and is not asked about."""
LOOK_SECONDS = 1.0
"""How often a worker looks of which jobs there is something to tell: one row, however many jobs it runs."""
EVENTS_MAX = 20
LEVELS = {"machine.burst": "warning"}
"""All others are errors."""


class OnMachine:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked_at = float("-inf")
        self._told_of: set[str] = set()
        self._shares = Shares()

    async def run(self, attempt: Attempt) -> Completion | Departure | None:
        await self._tell(attempt)
        self._shares.began(attempt.claimed.run_id)
        try:
            return await run_attempt(attempt)
        finally:
            self._shares.ended(attempt.claimed.run_id, attempt.claimed.tenant)

    async def send(self) -> None:
        await self._shares.send(self._store)

    async def _tell(self, attempt: Attempt) -> None:
        """Only of this run: what an older one waited for is in that one's log."""
        claimed = attempt.claimed
        if claimed.waited_seconds < WAITED_SECONDS:
            return
        with contextlib.suppress(StorageError):
            await self._look()
            if claimed.id not in self._told_of:
                return
            for event in reversed(await self._store.event_list(job_id=claimed.id, limit=EVENTS_MAX)):
                if event.type.startswith("machine.") and event.data.get("run_id") == claimed.run_id:
                    attempt.note(LEVELS.get(event.type, "error"), str(event.data["message"]), {"event": event.type})

    async def _look(self) -> None:
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            turn = await self._store.shared("machine_turn_look")
            self._told_of = {line.rpartition(" ")[2] for line in (turn[0]["told"] or "").splitlines()} if turn else set()
