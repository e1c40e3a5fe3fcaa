"""Workers: who is there, since when, and last seen when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.clock import ManualClock
from holdfast.store.protocol import Store, WorkerRow
from tests.conformance.scene import QUEUE, TASK


def a_worker(worker_id: str = "worker-1", **fields: Any) -> WorkerRow:
    usual: dict[str, Any] = {
        "id": worker_id,
        "host": "host-1",
        "pid": 4711,
        "machine_id": None,
        "version": "1.2.3",
        "queues": [QUEUE],
        "tasks": [TASK],
        "concurrency": 10,
    }
    return WorkerRow(**{**usual, **fields})


async def test_a_worker_is_listed_with_all_it_says_of_itself(store: Store, clock: ManualClock) -> None:
    """Host, process, machine, version, queues, tasks, slots; and since when by the database's clock."""
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    said = a_worker(machine_id="m-1", queues=["a", "b"], tasks=["x", "y"], running=3, draining=True, started_at=long_ago)
    await store.worker_save(said)
    said.started_at = said.last_seen_at = clock.now()
    assert [said] == await store.worker_list()


async def test_a_worker_that_says_again_that_it_lives_stays_one_worker(store: Store, clock: ManualClock) -> None:
    """Running, draining and last seen change; since when it is there does not."""
    began = clock.now()
    await store.worker_save(a_worker())
    clock.advance(15)
    await store.worker_save(a_worker(running=7, draining=True))
    (found,) = await store.worker_list()
    assert (found.running, found.draining, found.started_at, found.last_seen_at) == (7, True, began, clock.now())
    await store.worker_save(a_worker())
    assert [worker.draining for worker in await store.worker_list()] == [False]


async def test_a_heartbeat_does_not_take_back_that_a_worker_is_going(store: Store, clock: ManualClock) -> None:
    """It may have been on its way for a while; all else that it says counts."""
    began = clock.now()
    await store.worker_seen(a_worker())
    await store.worker_save(a_worker(draining=True))
    clock.advance(15)
    await store.worker_seen(a_worker(running=7, draining=False))
    (found,) = await store.worker_list()
    assert (found.running, found.draining, found.started_at, found.last_seen_at) == (7, True, began, clock.now())
    await store.worker_save(a_worker(draining=False))
    await store.worker_seen(a_worker(draining=True))
    assert [worker.draining for worker in await store.worker_list()] == [False]


async def test_workers_are_listed_in_the_order_they_came(store: Store, clock: ManualClock) -> None:
    """Oldest first, by id where they came together."""
    for worker_id, pause in (("z", 10), ("b", 0), ("a", 0)):
        await store.worker_save(a_worker(worker_id))
        clock.advance(pause)
    assert [worker.id for worker in await store.worker_list()] == ["z", "a", "b"]


async def test_a_removed_worker_is_gone(store: Store) -> None:
    """The others stay, and removing one that is not there is no error."""
    await store.worker_save(a_worker("goes"))
    await store.worker_save(a_worker("stays"))
    await store.worker_remove("goes")
    await store.worker_remove("goes")
    assert [worker.id for worker in await store.worker_list()] == ["stays"]


async def test_the_hosts_clock_is_compared_with_the_databases(store: Store) -> None:
    """On one machine they agree to within a second; on SQLite they are the same clock."""
    offset = min([await store.clock_offset() for _ in range(5)], key=abs)  # a slow answer is no difference of clocks
    assert abs(offset) < 1.0
    assert offset == 0.0 or store.name == "postgres"
