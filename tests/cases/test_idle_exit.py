"""A worker that leaves when there is nothing to do, and never leaves a job behind by it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Holdfast, State
from holdfast.store.protocol import WorkerRow
from tests.cases.steps import comes_to, drain, ends, working
from tests.support.waiting import until


class BetweenTheLooks:
    """A store in which something happens right after a worker said that it is going, and before it looks once more."""

    def __init__(self, hf: Holdfast, happens: Any) -> None:
        self._store = hf.store
        self._happens = happens
        self.said: list[bool] = []
        """Whether each row that the worker wrote says that it is going."""
        hf.store = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def worker_save(self, worker: WorkerRow) -> None:
        await self._store.worker_save(worker)
        self.said.append(worker.draining)
        if worker.draining and self._happens is not None:
            happens, self._happens = self._happens, None
            await happens()


@pytest.mark.case("L25")
async def test_a_job_enqueued_while_the_worker_says_goodbye_is_found_by_its_last_look(hf: Holdfast) -> None:
    """Write, then read: the worker says that it is going, looks once more, stays, and takes that back."""

    @hf.task
    async def work() -> str:
        return "served"

    jobs = []

    async def enqueue() -> None:
        jobs.append(await work.enqueue())

    store = BetweenTheLooks(hf, enqueue)
    end = await drain(hf)
    assert await jobs[0].result(timeout=0) == "served" and end.jobs == 1
    assert store.said[0] is False and True in store.said
    assert False in store.said[store.said.index(True) :], "it said that it stays"


@pytest.mark.case("L25")
async def test_a_job_enqueued_after_the_last_look_stays_queued_for_the_next_worker(hf: Holdfast) -> None:
    """Whoever enqueues then sees no worker that stays, and the next worker serves the job."""

    @hf.task
    async def work() -> str:
        return "served"

    seen: list[list[bool]] = []
    jobs = []
    store = hf.store
    remove = store.worker_remove

    async def enqueue_first(worker_id: str) -> None:
        jobs.append(await work.enqueue())
        seen.append([row.draining for row in await store.worker_list()])
        await remove(worker_id)

    store.worker_remove = enqueue_first  # type: ignore[method-assign]
    assert (await drain(hf)).jobs == 0
    assert seen == [[True]] and (await hf.get(jobs[0].id)).state is State.QUEUED
    store.worker_remove = remove  # type: ignore[method-assign]
    assert (await drain(hf)).jobs == 1
    assert await jobs[0].result(timeout=0) == "served"


@pytest.mark.case("L25")
async def test_enqueues_at_every_moment_of_a_workers_end_are_all_served(hf: Holdfast) -> None:
    """One worker after another leaves as soon as it is idle while jobs trickle in: none is lost, none runs twice."""
    ran: list[int] = []

    @hf.task
    async def work(n: int) -> None:
        ran.append(n)

    async def trickle() -> None:
        for n in range(60):
            await work.enqueue(n)
            for _ in range(n % 7):
                await asyncio.sleep(0)

    trickling = asyncio.create_task(trickle())
    while not trickling.done():
        await drain(hf)
    await trickling
    await drain(hf)
    assert sorted(ran) == list(range(60))


@pytest.mark.case("life-5", "L1")
async def test_a_worker_leaves_after_its_idle_time_and_not_before(hf: Holdfast) -> None:
    """It waits for new work first, and its row is gone when it has left."""

    ran_at = 0.0

    @hf.task
    async def work() -> str:
        nonlocal ran_at
        ran_at = loop.time()
        return "in time"

    worker = hf.worker(exit_when_idle=2.0)  # time enough for the test to enqueue
    loop = asyncio.get_running_loop()
    life = asyncio.create_task(worker.run())
    await until(hf.workers)
    assert await (await work.enqueue()).result(timeout=40) == "in time"
    end = await asyncio.wait_for(life, 40)
    assert (end.reason, end.jobs) == ("idle", 1)
    assert loop.time() - ran_at >= 2.0
    assert await hf.workers() == []


@pytest.mark.case("L29", "life-5")
async def test_a_worker_whose_idle_time_is_over_does_not_leave_while_a_job_runs(hf: Holdfast) -> None:
    """With an idle time of nothing at all it still waits for the job's end."""
    go = asyncio.Event()

    @hf.task
    async def long() -> str:
        await go.wait()
        return "done"

    job = await long.enqueue()
    life = asyncio.create_task(hf.run_worker(exit_when_idle=0.0))
    running = await comes_to(hf, job, State.RUNNING)

    @hf.task(name="other", queue="other")
    async def other() -> None: ...

    looks = 0

    async def has_looked_often() -> bool:
        nonlocal looks
        looks += 1
        return looks > 20

    await until(has_looked_often)
    assert not life.done() and running.locked_by
    go.set()
    assert (await asyncio.wait_for(life, 40)).reason == "idle"
    assert await job.result(timeout=0) == "done"


async def test_a_worker_without_idle_exit_stays(hf: Holdfast) -> None:
    """It serves what comes later, woken by the enqueue itself."""

    @hf.task
    async def work() -> str:
        return "served"

    async with working(hf):
        for _ in range(3):
            assert await (await work.enqueue()).result(timeout=40) == "served"


async def test_a_retry_that_is_due_at_once_is_not_left_behind(hf: Holdfast) -> None:
    """exit_when_idle=0.0 returns when nothing is left to do now, and an immediate retry is something."""

    @hf.task(backoff=(0,), max_attempts=5)
    async def fail() -> None:
        raise ValueError

    job = await fail.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).attempt == 5


@pytest.mark.case("C27")
async def test_a_second_worker_for_one_job_finds_nothing_and_leaves(hf: Holdfast) -> None:
    """A worker too many is harmless."""
    go = asyncio.Event()

    @hf.task
    async def work() -> None:
        await go.wait()

    job = await work.enqueue()
    async with working(hf):
        await comes_to(hf, job, State.RUNNING)
        assert (await drain(hf)).jobs == 0
        go.set()
        await ends(hf, job)


class LateBeat:
    """A store in which the first heartbeat arrives only after the worker has said that it is going."""

    def __init__(self, hf: Holdfast) -> None:
        self._store = hf.store
        self.on_its_way, self.arrived, self._going = threading.Event(), threading.Event(), threading.Event()
        self._first: WorkerRow | None = None
        self.shown: list[bool] = []
        """Whether others saw the worker go, once the heartbeat was there."""
        hf.store = self  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def worker_seen(self, worker: WorkerRow) -> None:
        self._first = self._first or worker  # it gives up soon and asks again
        self.on_its_way.set()
        await asyncio.to_thread(self._going.wait)
        await self._store.worker_seen(self._first)
        self.arrived.set()

    async def worker_save(self, worker: WorkerRow) -> None:
        await self._store.worker_save(worker)
        if worker.draining and not self._going.is_set():
            self._going.set()
            await asyncio.to_thread(self.arrived.wait)
            self.shown = [known.draining for known in await self._store.worker_list()]


@pytest.mark.case("L25")
async def test_a_heartbeat_that_was_on_its_way_does_not_hide_that_the_worker_is_going(database_url: str) -> None:
    """Whoever enqueues then would rely on a worker that has looked for the last time."""
    hf = Holdfast(database_url, heartbeat=0.05)
    store = LateBeat(hf)

    @hf.task
    async def work() -> None:
        await asyncio.to_thread(store.on_its_way.wait)

    await work.enqueue()
    await drain(hf)
    assert store.shown == [True]
    await hf.aclose()
