"""The reaper's pass over adopted tables: rows whose worker died or hangs are queued again, or given up."""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.adopt.layout import Layout, look
from holdfast.adopt.setup import stored
from holdfast.adopt.table import AdoptedTable, Rescued
from holdfast.errors import HoldfastError, StorageError
from holdfast.redact import redact
from holdfast.settings import Settings
from holdfast.store.protocol import Store, Tally, Transaction
from holdfast.tally import MILLISECONDS, Histogram, merged, stage_label

log = logging.getLogger("holdfast")

BATCH = 500
BATCHES_MAX = 20
LEFT = ("id", "status", "next_earliest_run_at", "fail_code", "fail_reason")
_rng = random.Random()


async def reap_adopted(store: Store, settings: Settings) -> list[Rescued]:
    """One pass over those adopted by the command and those named in code. What is wrong with one does not stop the next."""
    tables: dict[str, AdoptedTable] = {one.table: one for one in settings.adopted}
    try:
        tables = {one.table: one for one in await stored(store)} | tables
    except HoldfastError as error:
        log.warning("Which tables are adopted could not be read; those named in code are looked after: %s", error)
    rescued: list[Rescued] = []
    for adopted in tables.values():
        try:
            rescued += await _reap_table(store, settings, adopted)
        except HoldfastError as error:
            log.error("[RECOVERY] The adopted table %s was left out of this pass: %s", adopted.table, error)
        except Exception:
            log.exception("[RECOVERY] The adopted table %s was left out of this pass", adopted.table)
    return rescued


async def _reap_table(store: Store, settings: Settings, adopted: AdoptedTable) -> list[Rescued]:
    started = time.monotonic()
    rescued: list[Rescued] = []
    try:
        for _ in range(BATCHES_MAX):
            async with store.transaction() as tx:
                found = await _reap_batch(tx, settings, adopted)
            for row in found:
                _tell(row)
            rescued += found
            await _republish(adopted, [row for row in found if row.requeued])
            if len(found) < BATCH:
                break
    finally:
        await _tally(store, adopted.table, rescued, (time.monotonic() - started) * 1000)
    return rescued


async def _reap_batch(tx: Transaction, settings: Settings, adopted: AdoptedTable) -> list[Rescued]:
    layout = await look(tx, adopted)
    layout.require_complete()
    now: datetime = (await tx.shared("adopt_now"))[0]["now_at"]
    rows = await tx.fetch(
        layout.sql("rows_expired"),
        now.timestamp(),
        BATCH,
        adopted.word("running"),
        msgspec.json.encode(dict(settings.sla_factors)).decode(),
        settings.sla_factor,
        settings.deadline_grace,
        settings.max_attempts,
    )
    rescued = [_verdict(row, adopted.table, settings) for row in rows]
    if rescued:
        leaving = [_leaving(one, adopted, now) for one in rescued]
        await tx.execute(layout.sql("rows_leave", *LEFT), msgspec.json.encode(leaving).decode())
        await write_events(tx, layout, [(one.id, _event(one, now)) for one in rescued])
    return rescued


async def write_events(tx: Transaction, layout: Layout, events: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    assert layout.events is not None
    as_object = layout.events.columns["data"] in ("json", "jsonb")
    given = [{"job_id": job_id, "data": data if as_object else msgspec.json.encode(data).decode()} for job_id, data in events]
    await tx.execute(layout.sql("events_write", "job_id", "data"), msgspec.json.encode(given).decode())


def backoff(settings: Settings, attempt: int) -> float:
    """Exponential with full jitter."""
    doublings = min(max(attempt, 1) - 1, 60)
    return _rng.uniform(0, min(settings.backoff_max, settings.backoff_base * 2.0**doublings))


def _verdict(row: dict[str, Any], table: str, settings: Settings) -> Rescued:
    has_more = row["attempt"] < row["attempts"]
    return Rescued(
        table=table,
        id=row["id"],
        requeued=has_more,
        reason=row["reason"],
        locked_by=None if row["locked_by"] is None else redact(str(row["locked_by"])),
        stage=None if row["stage"] is None else str(row["stage"]),
        attempt=row["attempt"],
        max_attempts=row["attempts"],
        delay=backoff(settings, row["attempt"]) if has_more else 0.0,
    )


def _leaving(one: Rescued, adopted: AdoptedTable, now: datetime) -> dict[str, Any]:
    if one.requeued:
        next_at = now.timestamp() + one.delay
        return dict.fromkeys(LEFT) | {"id": one.id, "status": adopted.word("queued"), "next_earliest_run_at": next_at}
    what = "machine crashed or timed out" if one.reason == "lease_expired" else "it ran past its deadline"
    reason = f"Failed after {one.attempt} attempts - {what}."
    return dict.fromkeys(LEFT) | {
        "id": one.id,
        "status": adopted.word("failed"),
        "fail_code": "timeout",
        "fail_reason": reason,
    }


def _event(one: Rescued, now: datetime) -> dict[str, Any]:
    return {
        "type": "reaper:requeued" if one.requeued else "reaper:failed(timeout)",
        "table": one.table,
        "details": {"reason": one.reason, "locked_by": one.locked_by},
        "at": now.isoformat(),
    }


def _tell(one: Rescued) -> None:
    done = f"queued again, in {one.delay:.1f} s" if one.requeued else "failed"
    log.warning(
        "[RECOVERY] %s %s: attempt %d of %d, %s, locked by %s: %s",
        one.table,
        one.id,
        one.attempt,
        one.max_attempts,
        one.reason,
        one.locked_by,
        done,
    )


async def _republish(adopted: AdoptedTable, rows: list[Rescued]) -> None:
    """After the commit: whoever is told may look at the row at once."""
    if adopted.on_requeued is None or not rows:
        return
    try:
        told = adopted.on_requeued(rows)
        if inspect.isawaitable(told):
            await told
    except Exception:
        ids = ", ".join(str(row.id) for row in rows)
        log.exception("[RECOVERY] %s: on_requeued failed, so nobody was told of the queued rows %s", adopted.table, ids)


async def _tally(store: Store, table: str, rescued: list[Rescued], milliseconds: float) -> None:
    counts = [
        Tally("reaper_requeued" if one.requeued else "reaper_failed", table, stage_label(one.stage), 1) for one in rescued
    ]
    scan = Histogram(MILLISECONDS)
    scan.observe(milliseconds)
    try:
        await store.tally_add(merged([*counts, *scan.tallies("reaper_scan", table, "adopted")]))
    except StorageError as error:
        log.warning("What the reaper did was not counted: %s", error)
