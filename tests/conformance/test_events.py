"""The audit trail: what was unusual, who did it, readable by job, by tenant and for everybody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.clock import ManualClock
from holdfast.ids import new_job_id
from holdfast.store.protocol import UNCHANGED, Leaving, Plan, Store
from tests.conformance.scene import LEASE, complete, event_types, fail, insert, leave, reap, start

Act = Callable[[Store], Awaitable[object]]

ACTS: dict[str, tuple[Act, dict[str, object]]] = {
    "tenant.changed": (
        lambda store: store.tenant_set("acme", plan="pro", max_running=4, queue_depth=UNCHANGED, by="ana"),
        {"plan": "pro", "max_running": 4, "queue_depth": None, "timezone": "UTC"},
    ),
    "tenant.paused": (lambda store: store.tenant_pause("acme", paused=True, by="ana"), {}),
    "tenant.resumed": (lambda store: store.tenant_pause("acme", paused=False, by="ana"), {}),
    "plan.changed": (
        lambda store: store.plan_set(Plan("pro", 11, 12, 3), by="ana"),
        {"plan": "pro", "max_running": 11, "queue_depth": 12, "weight": 3},
    ),
    "queue.changed": (lambda store: store.queue_set("mail", max_running=7, by="ana"), {"queue": "mail", "max_running": 7}),
    "queue.paused": (lambda store: store.queue_pause("mail", paused=True, by="ana"), {"queue": "mail"}),
    "queue.resumed": (lambda store: store.queue_pause("mail", paused=False, by="ana"), {"queue": "mail"}),
}


@pytest.mark.parametrize("kind", ACTS)
async def test_a_changed_limit_or_pause_is_recorded(store: Store, clock: ManualClock, kind: str) -> None:
    """What it is now, who changed it and when; a tenant's own stand in its trail."""
    act, data = ACTS[kind]
    await act(store)
    (event,) = await store.event_list(limit=10)
    assert (event.type, event.actor, event.data, event.at, event.job_id) == (kind, "ana", data, clock.now(), None)
    assert event.tenant == ("acme" if kind.startswith("tenant") else None)


async def test_each_unusual_move_of_a_job_is_recorded(store: Store, clock: ManualClock) -> None:
    """Every way in which a job can leave its straight path, with its tenant."""
    moves: dict[str, list[str]] = {}

    async def note(name: str, job_id: str) -> None:
        moves[name] = await event_types(store, job_id)
        assert {event.tenant for event in await store.event_list(job_id=job_id, limit=10)} == {"acme"}

    for how in Leaving:
        run = await start(store, tenant="acme", queue=how.value)
        await leave(store, run, how)
        await note(how.value, run.id)
    job = await insert(store, tenant="acme", queue="other")
    await store.job_cancel(job.id, "ana")
    await store.job_retry_if_ended(job.id, "ana")
    await note("people", job.id)
    run = await start(store, tenant="acme", queue="asked")
    await store.job_cancel(run.id, "ana")
    await leave(store, run, Leaving.CANCEL)
    await note("asked", run.id)
    for name, attempts, cancelled in (("lost", 3, False), ("exhausted", 1, False), ("silent", 3, True)):
        run = await start(store, tenant="acme", queue=name, max_attempts=attempts)
        if cancelled:
            await store.job_cancel(run.id, "ana")
        clock.advance(LEASE + 1)
        await reap(store)
        await note(name, run.id)
    assert moves == {
        "retry": ["job.retrying"],
        "fail": ["job.failed"],
        "snooze": ["job.snoozed"],
        "release": ["job.released"],
        "cancel": ["job.cancelled"],
        "people": ["job.cancelled", "job.retried"],
        "asked": ["job.cancel_requested", "job.cancelled"],
        "lost": ["reaper:requeued"],
        "exhausted": ["reaper:failed(timeout)"],
        "silent": ["job.cancel_requested", "reaper:cancelled"],
    }


async def test_a_job_that_simply_works_leaves_no_trace(store: Store) -> None:
    """Who enqueued it stands on the job itself."""
    await complete(store, await start(store, tenant="acme"))
    assert await store.event_list(limit=10) == []


async def test_events_are_read_newest_first_and_page_by_page(store: Store) -> None:
    """The id of the last one seen is the cursor, alone or with a job or tenant."""
    for n in range(5):
        await store.tenant_pause("acme", paused=n % 2 == 0, by=str(n))
        await store.tenant_pause("other", paused=n % 2 == 0, by=str(n))
    everything = await store.event_list(limit=100)
    assert [event.id for event in everything] == sorted((event.id for event in everything), reverse=True)
    first = await store.event_list(tenant="acme", limit=3)
    second = await store.event_list(tenant="acme", before=first[-1].id, limit=3)
    assert [event.actor for event in [*first, *second]] == ["4", "3", "2", "1", "0"]
    assert await store.event_list(before=everything[3].id, limit=2) == everything[4:6]


async def test_a_trail_by_job_or_tenant_shows_nobody_elses(store: Store) -> None:
    """Both together must both match; who never did anything has an empty trail."""
    mine, theirs = await fail(store, tenant="acme"), await fail(store, tenant="other")
    nobodys = await fail(store)
    assert [event.job_id for event in await store.event_list(tenant="acme", limit=10)] == [mine.id]
    assert [event.job_id for event in await store.event_list(job_id=theirs.id, limit=10)] == [theirs.id]
    assert [event.job_id for event in await store.event_list(job_id=mine.id, tenant="acme", limit=10)] == [mine.id]
    assert await store.event_list(job_id=mine.id, tenant="other", limit=10) == []
    assert await store.event_list(tenant="", limit=10) == [] == await store.event_list(tenant="none", limit=10)
    assert await store.event_list(job_id=new_job_id(), limit=10) == [] == await store.event_list(job_id="x", limit=10)
    assert {event.job_id for event in await store.event_list(limit=10)} == {mine.id, theirs.id, nobodys.id}
