"""What kept a job waiting for a machine is told by the first lines of its run: while it was queued it had no log yet."""

from __future__ import annotations

import contextlib

from holdfast.errors import StorageError
from holdfast.run import Attempt
from holdfast.store.protocol import Store

WAITED_SECONDS = 1.0
"""A job that waited for less has nothing to tell, and is not asked about."""
EVENTS_MAX = 20
LEVELS = {"machine.burst": "warning"}
"""All others are errors."""


async def tell_of_machines(store: Store, attempt: Attempt) -> None:
    """Only of this run: what an older one waited for is in that one's log."""
    claimed = attempt.claimed
    if claimed.waited_seconds < WAITED_SECONDS:
        return
    with contextlib.suppress(StorageError):
        for event in reversed(await store.event_list(job_id=claimed.id, limit=EVENTS_MAX)):
            if event.type.startswith("machine.") and event.data.get("run_id") == claimed.run_id:
                attempt.note(LEVELS.get(event.type, "error"), str(event.data["message"]), {"event": event.type})
