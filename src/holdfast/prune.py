"""Step 6 of 6: forget. What is older than its retention goes, in small batches that block nobody."""

from __future__ import annotations

import time
from collections import Counter

from holdfast.settings import Settings
from holdfast.store.protocol import Retention, Store

BATCH = 1000
DAY = 86_400.0
MONTHS_KEPT_DAYS = 800.0
"""What tenants spent, month by month: two years to look back on."""
SECONDS_MAX = 5.0
"""The reaper waits meanwhile; what is left goes with its next passes."""


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
        gone = await store.prune(retention, limit=BATCH)
        gone["idempotency_keys"] = len(await store.shared("idempotency_prune", BATCH))
        gone["rate_buckets"] = len(await store.shared("rate_prune", BATCH))
        gone["budget_runs"] = len(await store.shared("budget_prune_runs", settings.retention_events * DAY, BATCH))
        gone["budget_months"] = len(await store.shared("budget_prune_months", MONTHS_KEPT_DAYS * DAY, BATCH))
        total.update(gone)
        if max(gone.values()) < BATCH:
            break
    return dict(total)
