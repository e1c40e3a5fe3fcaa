"""How a worker in this process ends when it is told to: by stop, by aclose, by cancellation of its own task."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

from holdfast import Holdfast, State, current
from holdfast.store.protocol import Departure, Leaving
from tests.cases.steps import comes_to, ends
from tests.support.waiting import until


async def hang() -> None:
    await asyncio.Event().wait()


@pytest.mark.case("L20")
async def test_stop_claims_no_more_waits_for_what_runs_and_leaves_the_rest_queued(hf: Holdfast) -> None:
    """Within its grace period the running job completes."""
    go = asyncio.Event()

    @hf.task
    async def work() -> str:
        await go.wait()
        return "done"

    running, waiting = await work.enqueue(), await work.enqueue()
    worker = hf.worker(concurrency=1)
    life = asyncio.create_task(worker.run())
    await comes_to(hf, running, State.RUNNING)
    worker.stop()
    later = await work.enqueue()
    await until(lambda: worker._draining)
    assert not life.done()
    go.set()
    end = await asyncio.wait_for(life, 40)
    assert (end.reason, end.jobs) == ("stopped", 1)
    assert await running.result(timeout=0) == "done"
    for job in (waiting, later):
        assert ((found := await hf.get(job.id)).state, found.attempt) == (State.QUEUED, 0)


@pytest.mark.case("L20")
async def test_after_its_grace_a_stopping_worker_gives_long_jobs_back_uncounted(hf: Holdfast) -> None:
    """Queued at once under a new run id, the run is in the history as released."""
    hf.settings = dataclasses.replace(hf.settings, grace=0.05)
    job = await hf.task(hang).enqueue()
    worker = hf.worker()
    life = asyncio.create_task(worker.run())
    await comes_to(hf, job, State.RUNNING)
    worker.stop()
    await asyncio.wait_for(life, 40)
    back = await hf.get(job.id)
    assert (back.state, back.attempt, back.status) == (State.QUEUED, 0, "queued") and back.run_id != job.run_id
    assert [run.outcome for run in await hf.runs(job.id)] == ["released"]


async def test_a_second_stop_ends_the_grace_period(hf: Holdfast) -> None:
    """Whoever presses Ctrl+C twice does not wait for thirty seconds."""
    job = await hf.task(hang).enqueue()
    worker = hf.worker()
    life = asyncio.create_task(worker.run())
    await comes_to(hf, job, State.RUNNING)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(life, 40)
    assert (await hf.get(job.id)).state is State.QUEUED


async def test_a_run_that_talks_to_its_end_does_not_hold_up_a_stopping_worker(hf: Holdfast) -> None:
    """The last lines of a run are written while the worker waits, and its outcome is kept."""
    go = asyncio.Event()

    @hf.task
    async def talk() -> str:
        await go.wait()
        for n in range(3000):
            current().log.info(f"line {n}")
        return "said"

    jobs = [await talk.enqueue() for _ in range(5)]
    worker = hf.worker()
    life = asyncio.create_task(worker.run())
    for job in jobs:
        await comes_to(hf, job, State.RUNNING)
    worker.stop()
    go.set()
    await asyncio.wait_for(life, 40)
    assert [await job.result(timeout=0) for job in jobs] == ["said"] * 5
    assert len(await hf.logs((await hf.get(jobs[0].id)).run_id, limit=5000)) == 3000


async def test_a_task_that_refuses_to_stop_does_not_hold_up_a_stopping_worker(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job is given back without it, and what it returns later is refused."""
    monkeypatch.setattr("holdfast.processes.worker.LET_GO_SECONDS", 0.1)
    go, gone = asyncio.Event(), asyncio.Event()

    @hf.task
    async def immortal() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                pass
        gone.set()
        return "too late"

    job = await immortal.enqueue()
    worker = hf.worker()
    life = asyncio.create_task(worker.run())
    await comes_to(hf, job, State.RUNNING)
    worker.stop()
    worker.stop()
    try:
        end = await asyncio.wait_for(life, 40)
    finally:
        go.set()
    assert end.threads_left == 1
    await gone.wait()
    back = await hf.get(job.id)
    assert (back.state, back.attempt, back.output) == (State.QUEUED, 0, None)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_worker_whose_own_task_is_cancelled_gives_its_jobs_back(hf: Holdfast, kind: str) -> None:
    """A web server that cancels its background tasks at shutdown loses no job and does not hang."""
    go = threading.Event()

    @hf.task
    def in_thread() -> None:
        go.wait(60)

    job = await (hf.task(hang) if kind == "async" else in_thread).enqueue()
    life = asyncio.create_task(hf.run_worker())
    await comes_to(hf, job, State.RUNNING)
    life.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(life, 40)
    go.set()
    back = await hf.get(job.id)
    assert (back.state, back.attempt) == (State.QUEUED, 0)
    assert await hf.workers() == []


async def test_a_finished_job_is_written_down_when_the_workers_task_is_cancelled(hf: Holdfast) -> None:
    """What is done is done, also when the end comes in the same moment."""

    @hf.task
    async def quick(n: int) -> int:
        return n

    for _ in range(10):
        jobs = await hf.enqueue_many([quick.job(n) for n in range(20)])
        life = asyncio.create_task(hf.run_worker(concurrency=3))
        while not any([(await hf.get(job.id)).state is State.COMPLETED for job in jobs[:3]]):
            await asyncio.sleep(0)
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
        assert {(await hf.get(job.id)).state for job in jobs} <= {State.COMPLETED, State.QUEUED}


async def test_aclose_waits_for_the_workers_of_this_object(database_url: str) -> None:
    """Their jobs are finished, or given back, before the database is closed under them."""
    hf = Holdfast(database_url, grace=0.05)
    ended: list[Any] = []

    async def work() -> None:
        ended.append(await hf.run_worker())

    @hf.task
    async def long() -> None:
        await hang()

    job = await long.enqueue()
    life = asyncio.create_task(work())
    await comes_to(hf, job, State.RUNNING)
    await hf.aclose()
    await life
    assert ended[0].reason == "stopped"
    other = Holdfast(database_url)
    assert ((back := await other.get(job.id)).state, back.attempt) == (State.QUEUED, 0)
    await other.aclose()


async def test_a_worker_that_was_stopped_before_it_ran_ends_at_once(hf: Holdfast) -> None:
    """A signal may come before the first claim."""
    hf.task(hang)
    worker = hf.worker()
    worker.stop()
    end = await asyncio.wait_for(worker.run(), 40)
    assert (end.reason, end.jobs) == ("stopped", 0)


async def test_a_thread_that_lost_its_lease_does_not_take_the_next_jobs_thread(hf: Holdfast) -> None:
    """Its slot goes on with a fresh thread instead of waiting for one that cannot be stopped."""
    go = threading.Event()

    @hf.task(backoff=(600,))
    def stuck() -> None:
        go.wait(60)

    @hf.task
    def quick() -> str:
        return "ran"

    job = await stuck.enqueue()
    worker = hf.worker(concurrency=1)
    life = asyncio.create_task(worker.run())
    running = await comes_to(hf, job, State.RUNNING)
    await hf.store.job_leave_if_leased([Departure(id=job.id, run_id=running.run_id, how=Leaving.RETRY, delay=600)])
    worker._heart.beat_soon()
    try:
        assert (await ends(hf, await quick.enqueue())).output == "ran"
    finally:
        go.set()
    worker.stop()
    await asyncio.wait_for(life, 40)
