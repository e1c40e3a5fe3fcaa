"""The same done to all jobs that match: counted first, then in batches, with an end."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from holdfast.store.protocol import CANCELLABLE, RETRYABLE, JobFilter, Store

COUNT_MAX = 10_000
BATCH = 500


class BulkVerb(StrEnum):
    CANCEL = "cancel"
    RETRY = "retry"


class BulkResult(msgspec.Struct):
    count: int
    """How many there were, counted to a bound."""
    capped: bool
    done: int = 0
    skipped: int = 0


async def count(store: Store, verb: BulkVerb, where: JobFilter, most: int = COUNT_MAX) -> BulkResult:
    allowed = CANCELLABLE if verb is BulkVerb.CANCEL else RETRYABLE
    states = [state for state in allowed if where.state in (None, state)]
    found = sum([await store.job_count(msgspec.structs.replace(where, state=state), most) for state in states])
    return BulkResult(min(found, most), capped=found >= most)


async def act(
    store: Store, verb: BulkVerb, where: JobFilter, by: str | None, *, confirm: int | None, most: int = COUNT_MAX
) -> BulkResult:
    """Does something only where `confirm` is the count, so that nobody cancels more than he has seen; to `most` at a time."""
    result = await count(store, verb, where, most)
    if confirm != result.count:
        return result
    verb_of_store = store.job_cancel_many if verb is BulkVerb.CANCEL else store.job_retry_many
    cursor, left = None, result.count
    while left > 0:
        acted = await verb_of_store(where, by, cursor=cursor, limit=min(BATCH, left))
        result.done += len(acted.done)
        result.skipped += acted.skipped
        left -= len(acted.done) + acted.skipped
        cursor = acted.cursor
        if cursor is None:
            break
    return result
