"""Limits under eight real workers, and everything that can happen to a run: never above, not even for an instant."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import psycopg
import pytest

from holdfast import Job, State
from holdfast.errors import JobConflict
from tests.processes.scene import Scene
from tests.support.processes import Process
from tests.support.waiting import until

WORKERS = 8
COUNT = "SELECT coalesce(tenant, ''), count(*) FROM {jobs} WHERE state = 'running' GROUP BY 1"


class Sampler:
    """Reads how many jobs of each tenant run, again and again, each time from one snapshot and on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: list[dict[str, int]] = []

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def most(self, tenant: str, since: int = 0) -> int:
        return max((sample.get(tenant, 0) for sample in self.samples[since:]), default=0)

    def _run(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            sql = COUNT.format(jobs="holdfast_jobs" if isinstance(connection, sqlite3.Connection) else "holdfast.jobs")
            while not self._stop.wait(0.001):
                self.samples.append(dict(connection.execute(sql).fetchall()))

    def _connect(self) -> Any:
        if self._url.startswith("sqlite:///"):
            return sqlite3.connect(self._url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
        return psycopg.connect(self._url, autocommit=True)


@pytest.fixture
def sampler(scene: Scene) -> Iterator[Sampler]:
    with Sampler(scene.url) as sampler:
        yield sampler


async def eight_workers(scene: Scene) -> dict[int, Process]:
    """By process id, once all are there."""
    workers = [scene.worker("--concurrency", "5") for _ in range(WORKERS)]
    for worker in workers:
        await worker.registered(scene.hf.store)
    return {worker.pid: worker for worker in workers}


async def enqueue_mixture(scene: Scene, tenant: str, count: int, seconds: float) -> list[Job[Any]]:
    """Of ten jobs six simply work, and four fail, snooze or wait to be cancelled."""
    tasks = scene.tasks
    kinds = [tasks.work, tasks.always_fail, tasks.work, tasks.work_at_third_attempt, tasks.work]
    kinds += [tasks.work_until_cancelled, tasks.work, tasks.work_at_third_attempt, tasks.work, tasks.work]
    specs = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        length = 60.0 if kind is tasks.work_until_cancelled else seconds
        specs.append(kind.options(tenant=tenant).job(scene.folder, length))
    return await scene.hf.enqueue_many(specs)


async def enqueue_holding(scene: Scene, tenant: str, count: int) -> list[Job[Any]]:
    """They run until they are let go: a limit is reached, however slow the machine is."""
    return await scene.hf.enqueue_many([scene.tasks.hold.options(tenant=tenant).job(scene.folder) for _ in range(count)])


def let_all_go(scene: Scene, jobs: list[Job[Any]]) -> None:
    for job in jobs:
        for run_no in (1, 2):  # the worker of one of them is killed
            scene.let_go(job, run_no)


async def cancel_what_waits_for_it(scene: Scene) -> None:
    """Until it is itself cancelled."""

    async def look() -> None:
        for job in await scene.hf.jobs(task="work_until_cancelled", state=State.RUNNING, limit=200):
            with contextlib.suppress(JobConflict):  # asked already, or just reaped
                await scene.hf.cancel(job.id, by="the test")

    await until(look, timeout=120)


async def kill_a_worker_of(scene: Scene, tenant: str, workers: dict[int, Process]) -> str:
    """One that runs a job of this tenant; its id."""
    running = await until(lambda: scene.hf.jobs(tenant=tenant, state=State.RUNNING))
    (row,) = [row for row in await scene.hf.workers() if row.id == running[0].locked_by]
    workers[row.pid].kill()
    return row.id


@pytest.mark.case("C31", "C33", "queue-4")
@pytest.mark.usefixtures("short_lease")
async def test_eight_workers_never_exceed_a_limit_and_lose_no_place(scene: Scene, sampler: Sampler) -> None:
    """Free: never two; pro: never more than ten, and ten; a changed plan holds; a killed worker's places come back."""
    hf, limits = scene.hf, {"free": 1, "pro": 10}
    await hf.tenants.set("pro", plan="pro")
    workers = await eight_workers(scene)
    canceller = asyncio.create_task(cancel_what_waits_for_it(scene))
    jobs = await enqueue_mixture(scene, "free", 20, 0.02)
    jobs += await enqueue_mixture(scene, "pro", 100, 0.3)
    jobs += (holding := await enqueue_holding(scene, "pro", 12))
    changing = await enqueue_holding(scene, "changing", 40)
    await hf.enqueue_many([scene.tasks.work.job(scene.folder, 0.02) for _ in range(20)])

    await until(lambda: sampler.most("changing") and sampler.most("pro") >= 10, 60)
    assert sampler.most("changing") == 1
    await hf.tenants.set("changing", plan="pro")

    dead = await kill_a_worker_of(scene, "pro", workers)
    await until(lambda: sampler.most("changing") >= 10, 60)
    await hf.tenants.set("changing", plan="starter")
    let_all_go(scene, holding + changing)
    await until(lambda: sampler.samples[-1].get("changing", 0) <= 3)
    lowered = len(sampler.samples)

    await until(lambda: is_rid_of(scene, dead))
    rescued = len(sampler.samples)
    jobs += await enqueue_mixture(scene, "pro", 30, 0.3)
    jobs += (holding := await enqueue_holding(scene, "pro", 12))
    await until(lambda: sampler.most("pro", rescued) >= 10, 60)
    let_all_go(scene, holding)

    await scene.all_ended()
    canceller.cancel()
    assert {tenant: sampler.most(tenant) for tenant in limits} == limits
    assert sampler.most("changing") == 10
    assert sampler.most("changing", lowered) <= 3
    assert [(await hf.tenants.get(tenant)).running for tenant in ("free", "pro", "changing")] == [0, 0, 0]
    await assert_ended_as_they_should(scene, jobs + changing)


async def is_rid_of(scene: Scene, worker: str) -> bool:
    return not await scene.hf.store.lease_list(worker)


async def assert_ended_as_they_should(scene: Scene, jobs: list[Job[Any]]) -> None:
    expected = {"always_fail": State.FAILED, "work_until_cancelled": State.CANCELLED}
    found = [await scene.hf.get(job.id) for job in jobs]
    assert [job.state for job in found] == [expected.get(job.task, State.COMPLETED) for job in found]
    await scene.assert_all_done_once([job.id for job in found if job.state is State.COMPLETED])
