"""The ends of jobs whose task says `announce=True`, told to the webhooks of their tenant as `job.completed`, `job.failed` and
`job.cancelled`.

Nothing happens on the job's own path: its row carries a mark, and whoever ends it (worker, reaper, cancel) does what he always
does. A partial index holds the ended rows whose mark is open; a pass makes their messages and closes the marks in one
transaction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.webhooks.common import Platform

BATCH = 100


async def announce_ended(platform: Platform) -> int:
    """One pass over all that has ended since the last; how many ends were told, whether or not anybody wanted to know."""
    told = 0
    while True:
        async with platform.transaction() as tx:
            rows = await tx.shared("announce_take", BATCH)
            for row in sorted(rows, key=lambda one: one["finished_at"]):
                type = f"job.{row['state']}"
                await platform.outbox.send(row["tenant"], type, _told_of(row), key=f"job:{row['id']}", tx=tx)
        told += len(rows)
        if len(rows) < BATCH:
            return told


def _told_of(row: dict[str, Any]) -> dict[str, Any]:
    """Without arguments and result, which may be large or private: whoever wants them asks for the job."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
