"""A tenant's own: what is somebody else's is not there. And what is done to all jobs that match."""

from __future__ import annotations

import pytest

from holdfast.errors import JobNotFound
from holdfast.ids import new_job_id
from holdfast.job import State
from holdfast.store.protocol import JobFilter, Store
from tests.conformance.scene import (
    by_hand,
    claimed_ids,
    complete,
    event_types,
    fail,
    insert,
    insert_some,
    set_limit,
    start,
    state_of,
)


async def test_a_tenant_gets_its_own_job(store: Store) -> None:
    """With its runs."""
    job = await start(store, tenant="acme")
    assert (await store.job_get(job.id, tenant="acme")).id == job.id
    assert [run.run_id for run in await store.run_list(job.id, tenant="acme")] == [job.run_id]


@pytest.mark.parametrize("owner", ["acme", None])
async def test_a_foreign_job_is_not_there(store: Store, owner: str | None) -> None:
    """For get, runs, cancel and retry; and nothing happens to it, also where it belongs to nobody."""
    waiting = await insert(store, tenant=owner)
    failed = await fail(store, tenant=owner, task="other")
    with pytest.raises(JobNotFound):
        await store.job_get(waiting.id, tenant="other")
    with pytest.raises(JobNotFound):
        await store.run_list(failed.id, tenant="other")
    with pytest.raises(JobNotFound):
        await store.job_cancel(waiting.id, "eve", tenant="other")
    with pytest.raises(JobNotFound):
        await store.job_retry_if_ended(failed.id, "eve", tenant="other")
    assert (await state_of(store, waiting.id), await state_of(store, failed.id)) == (State.QUEUED, State.FAILED)
    assert "job.cancelled" not in await event_types(store, waiting.id)


async def test_a_tenant_cancels_and_retries_its_own(store: Store) -> None:
    """As anybody would without a tenant in the question."""
    job = await insert(store, tenant="acme")
    assert (await store.job_cancel(job.id, "ana", tenant="acme")).state is State.CANCELLED
    assert (await store.job_retry_if_ended(job.id, "ana", tenant="acme")).state is State.QUEUED


async def test_a_tenants_list_is_its_own_in_every_state_newest_first(store: Store) -> None:
    """Page by page, whatever others have in between."""
    mine: list[str] = []
    for state in ("queued", "cancelled", "failed", "queued", "completed"):
        await insert(store, tenant="other")
        job = await insert(store, tenant="acme")
        mine.insert(0, job.id)
        await by_hand(store, f"UPDATE {{jobs}} SET state = '{state}' WHERE id = $1", job.id)
    first = await store.job_list(JobFilter(tenant="acme"), cursor=None, limit=3)
    second = await store.job_list(JobFilter(tenant="acme"), cursor=first[-1].id, limit=3)
    assert [job.id for job in (*first, *second)] == mine
    assert [job.id for job in await store.job_list(JobFilter(tenant="acme", state=State.QUEUED), cursor=None, limit=9)] == [
        mine[1],
        mine[4],
    ]


async def test_a_glance_shows_what_changes_and_nothing_large(store: Store) -> None:
    """The newest first, of one tenant or of all."""
    older = await insert(store, tenant="acme", delay=60.0)
    newer = await insert(store, tenant="other")
    assert [job.id for job in await store.job_glances(JobFilter(), limit=5)] == [newer.id, older.id]
    (seen,) = await store.job_glances(JobFilter(tenant="acme"), limit=5)
    assert (seen.id, seen.state, seen.status, seen.attempt) == (older.id, State.QUEUED, "scheduled", 0)


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_a_count_ends_at_its_cap(store: Store, tenant: str | None) -> None:
    """It costs no more than the cap, however much there is."""
    await insert_some(store, 5, tenant="acme")
    await insert(store, tenant="acme", queue="other")
    where = JobFilter(tenant=tenant, queue="mail", state=State.QUEUED)
    assert (await store.job_count(where, 3), await store.job_count(where, 100)) == (3, 5)


@pytest.mark.parametrize("tenant", ["acme", None])
async def test_cancelling_many_takes_what_is_queued_or_runs_batch_by_batch(store: Store, tenant: str | None) -> None:
    """Running ones are asked, ended ones are left alone, and the cursor leads to an end."""
    ended = await start(store, tenant="acme")
    await complete(store, ended)
    running = await start(store, tenant="acme")
    queued = await insert_some(store, 3, tenant="acme")
    foreign = await insert(store, tenant="other", queue="other")
    where = JobFilter(tenant=tenant, queue="mail")
    first = await store.job_cancel_many(where, "ana", cursor=None, limit=2)
    second = await store.job_cancel_many(where, "ana", cursor=first.cursor, limit=3)
    assert (len(first.done), first.skipped, second.cursor) == (2, 0, None)
    assert sorted(first.done + second.done) == sorted([running.id, *queued])
    assert [await state_of(store, job_id) for job_id in queued] == [State.CANCELLED] * 3
    assert (await store.job_get(running.id)).cancel_requested_by == "ana"
    assert [await state_of(store, job_id) for job_id in (ended.id, foreign.id)] == [State.COMPLETED, State.QUEUED]
    assert await event_types(store, queued[0]) == ["job.cancelled"]
    assert await event_types(store, running.id) == ["job.cancel_requested"]


async def test_cancelling_many_again_skips_those_that_are_cancelling(store: Store) -> None:
    """Nothing is asked for twice."""
    running = await start(store)
    assert (await store.job_cancel_many(JobFilter(), "ana", cursor=None, limit=10)).done == [running.id]
    again = await store.job_cancel_many(JobFilter(), "ben", cursor=None, limit=10)
    assert (again.done, again.skipped, again.cursor) == ([], 1, None)


async def test_cancelling_many_lets_go_what_waited_behind_them(store: Store) -> None:
    """An ordering key is not stranded."""
    first = await insert(store, order_key="a", tags=["x"])
    second = await insert(store, order_key="a")
    assert await claimed_ids(store, 0) == []
    assert (await store.job_cancel_many(JobFilter(tag="x"), None, cursor=None, limit=10)).done == [first.id]
    assert await claimed_ids(store, 5) == [second.id]


async def test_retrying_many_queues_failed_and_cancelled_ones(store: Store) -> None:
    """A job whose unique key is taken by now is skipped, and the others go on."""
    await set_limit(store, 100, "acme")
    taken = await fail(store, tenant="acme", unique_key="k")
    failed = await fail(store, tenant="acme")
    cancelled = await insert(store, tenant="acme")
    await store.job_cancel(cancelled.id, None)
    newer = await insert(store, tenant="acme", unique_key="k")
    acted = await store.job_retry_many(JobFilter(tenant="acme"), "ana", cursor=None, limit=10)
    assert (sorted(acted.done), acted.skipped, acted.cursor) == (sorted([failed.id, cancelled.id]), 1, None)
    states = [await state_of(store, job_id) for job_id in (taken.id, failed.id, cancelled.id, newer.id)]
    assert states == [State.FAILED, State.QUEUED, State.QUEUED, State.QUEUED]
    assert (await store.job_get(failed.id)).attempt == 0


async def test_many_means_none_where_the_state_rules_it_out(store: Store) -> None:
    """A filter that asks for completed jobs cancels nothing."""
    await insert(store)
    acted = await store.job_cancel_many(JobFilter(state=State.COMPLETED), None, cursor=None, limit=10)
    assert (acted.done, acted.skipped, acted.cursor) == ([], 0, None)


async def test_a_cursor_need_not_be_a_job_that_is_there(store: Store) -> None:
    """A job may be forgotten between two pages."""
    job = await insert(store)
    listed = await store.job_list(JobFilter(), cursor=new_job_id(), limit=5)
    assert [found.id for found in listed] == [job.id]
