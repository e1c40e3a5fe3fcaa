"""What kept a job waiting for a machine is told by the first lines of its run: while it was queued it had no log yet."""

from __future__ import annotations

import contextlib
import time

from holdfast.errors import StorageError
from holdfast.run import Attempt
from holdfast.store.protocol import Store

WAITED_SECONDS = 1.0
"""A job that waited for less has nothing to tell, and is not asked about."""
LOOK_SECONDS = 1.0
"""How often a worker looks of which jobs there is something to tell: one row, however many jobs it runs."""
EVENTS_MAX = 20
LEVELS = {"machine.burst": "warning"}
"""All others are errors."""


class Beforehand:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked_at = float("-inf")
        self._told_of: set[str] = set()

    async def tell(self, attempt: Attempt) -> None:
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
