"""Jobs that take longer than their workers live."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast, Job, State
from holdfast.processes.worker import Worker
from tests.cases.steps import PATIENCE_SECONDS
from tests.support.waiting import until

LONG_SECONDS = 1000.0


@pytest.fixture
async def short(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    """Without a grace period, so that a run is cut off at once."""
    monkeypatch.setattr("holdfast.processes.worker.LET_GO_SECONDS", 0.2)
    hf, over = Holdfast(database_url, grace=0.0), asyncio.Event()
    await hf.migrate()

    @hf.task(name="long", max_attempts=2)
    async def long() -> None:
        await asyncio.Event().wait()

    @hf.task(name="stubborn", max_attempts=2)
    async def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    yield hf
    over.set()
    await hf.aclose()


async def cut_off(hf: Holdfast, job: Job[None], *, age: float = 0.0, hurry: bool = False) -> Job[None]:
    """By the end of the life of a worker that was so old when the run began."""
    worker = hf.worker(max_lifetime=LONG_SECONDS)
    ending = asyncio.create_task(worker.run())
    await until(lambda: worker.running)
    worker._lifetime._began -= age
    worker.stop("lifetime")
    if hurry:
        worker.stop()
    assert (await asyncio.wait_for(ending, PATIENCE_SECONDS)).reason == "lifetime"
    return await hf.get(job.id)


@pytest.mark.case("L32")
async def test_a_job_that_takes_longer_than_its_workers_live_fails_in_the_end(short: Holdfast) -> None:
    """By its attempts, whenever in the life of a worker it is claimed, with a code and a message that say why."""
    job = await short.enqueue("long")
    while (now := await short.get(job.id)).state is State.QUEUED:
        await asyncio.wait_for(short.worker(max_lifetime=0.3).run(), PATIENCE_SECONDS)
    assert (now.state, now.attempt, now.error_code) == (State.FAILED, 2, "worker_lifetime")
    assert "when its worker reached max_lifetime; raise that" in (now.error_message or "")


@pytest.mark.case("L32")
@pytest.mark.parametrize("task", ["long", "stubborn"])
async def test_a_run_cut_off_by_the_end_of_its_workers_life_costs_an_attempt(short: Holdfast, task: str) -> None:
    """Also one that refuses to stop: its job is queued again at once, with the reason."""
    job = await short.enqueue(task)
    now = await cut_off(short, job)
    assert (now.state, now.attempt, now.error_code) == (State.QUEUED, 1, "worker_lifetime")


@pytest.mark.case("L32")
async def test_a_run_that_an_old_worker_cuts_off_is_free_but_not_without_end(short: Holdfast) -> None:
    """It had less than half of a life; as often as its job may be tried, then it counts."""
    job = await short.enqueue("long")
    attempts = [(await cut_off(short, job, age=LONG_SECONDS / 2)).attempt for _ in range(4)]
    assert attempts == [0, 0, 1, 2]
    assert (await short.get(job.id)).state is State.FAILED


async def test_a_stop_in_the_grace_of_a_worker_at_the_end_of_its_life_costs_nothing(short: Holdfast) -> None:
    """The one who stopped it cut the run off, not its age."""
    job = await short.enqueue("long")
    now = await cut_off(short, job, hurry=True)
    assert (now.state, now.attempt, now.error_code) == (State.QUEUED, 0, None)


async def test_a_worker_names_the_tasks_that_may_take_longer_than_it_lives(
    hf: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """At its start, with the lifetime that they need."""

    @hf.task(timeout=3600)
    async def video() -> None: ...

    @hf.task(timeout=60)
    async def mail() -> None: ...

    worker: Worker = hf.worker(max_lifetime=1800, exit_when_idle=0)
    await asyncio.wait_for(worker.run(), PATIENCE_SECONDS)
    assert "video may take longer than this worker lives (1800 s)" in caplog.text
    assert "Raise max_lifetime to 3630 s" in caplog.text and "mail" not in caplog.text
