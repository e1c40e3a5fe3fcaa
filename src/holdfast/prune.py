"""Step 6 of 6: forget. What is older than its retention goes, in small batches that block nobody.

It is a schedule of the system itself (`holdfast.retention`): of all processes that could do it, one does, each ten minutes.
"""

from __future__ import annotations

import time
from collections import Counter

import msgspec

from holdfast.settings import Settings
from holdfast.store.protocol import Retention, Store

RETENTION = "holdfast.retention"
EVERY_SECONDS = 600.0
BATCH = 1000
DAY = 86_400.0
MONTHS_KEPT_DAYS = 800.0
"""What tenants spent, month by month: two years to look back on."""
SECONDS_MAX = 5.0
"""The reaper waits meanwhile; what is left goes with its next passes."""


async def prune_if_due(store: Store, settings: Settings) -> dict[str, int] | None:
    """None: somebody else has done it lately, or it is paused."""
    if not await store.shared("system_take", RETENTION, EVERY_SECONDS):
        return None
    return await prune(store, settings)


async def prune(store: Store, settings: Settings) -> dict[str, int]:
    """How many rows went, by table."""
    retention = Retention(
        finished=settings.retention_finished,
        failed=settings.retention_failed,
        events=settings.retention_events,
        logs=settings.retention_logs,
        workers=settings.retention_workers,
    )
    total: Counter[str] = Counter()
    give_up_at = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up_at:
        gone = await _prune_some(store, retention)
        total.update(gone)
        if max(gone.values()) < BATCH:
            break
    await store.shared("system_result", RETENTION, msgspec.json.encode(total).decode())
    return dict(total)


async def _prune_some(store: Store, retention: Retention) -> dict[str, int]:
    gone = await store.prune(retention, limit=BATCH)
    gone["idempotency_keys"] = len(await store.shared("idempotency_prune", BATCH))
    gone["rate_buckets"] = len(await store.shared("rate_prune", BATCH))
    gone["sessions"] = len(await store.shared("session_prune", BATCH))
    gone["budget_runs"] = len(await store.shared("budget_prune_runs", retention.events * DAY, BATCH))
    gone["budget_months"] = len(await store.shared("budget_prune_months", MONTHS_KEPT_DAYS * DAY, BATCH))
    # As long as failed jobs stay, which somebody may still retry.
    gone["batches"] = len(await store.shared("batch_prune", max(retention.failed, retention.finished) * DAY, BATCH))
    return gone
