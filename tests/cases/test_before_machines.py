"""Cases of machines and extraction, as far as they go without either: the job is safe whatever does not come."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, State
from holdfast.errors import DuplicateJob
from holdfast.store.protocol import WorkerRow


@pytest.mark.case("L2")
async def test_enqueue_succeeds_while_nobody_is_there_to_serve(hf: Holdfast) -> None:
    """The job stays queued, `why` says that nobody serves it, and whoever comes later does."""

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    assert (await hf.why(job.id)).code == "no_worker"
    assert (await hf.get(job.id)).state is State.QUEUED
    await hf.run_worker(exit_when_idle=0.0)
    assert await job.result(timeout=0) == "done"


@pytest.mark.case("L3")
async def test_a_worker_that_dies_before_its_claim_leaves_the_job_queued(hf: Holdfast) -> None:
    """It was registered and never asked for anything; the next one finds the job as it was."""

    @hf.task
    async def work() -> str:
        return "done"

    job = await work.enqueue()
    dead = {
        "host": "gone",
        "pid": 1,
        "machine_id": None,
        "version": "0",
        "queues": ["default"],
        "tasks": ["work"],
        "concurrency": 1,
    }
    await hf.store.worker_save(WorkerRow(id="gone-1", **dead))
    waiting = await hf.get(job.id)
    assert (waiting.state, waiting.attempt, waiting.run_id) == (State.QUEUED, 0, job.run_id)
    await hf.run_worker(exit_when_idle=0.0)
    assert await job.result(timeout=0) == "done"


@pytest.mark.case("L12")
async def test_a_second_job_for_the_same_thing_is_refused_while_one_is_active(hf: Holdfast) -> None:
    """With on_duplicate="raise" the caller gets the active job's id, and nothing is queued."""

    @hf.task
    async def extract() -> None: ...

    once = extract.options(tenant="acme", unique="project:7", on_duplicate="raise")
    first = await once.enqueue()
    with pytest.raises(DuplicateJob) as refused:
        await once.enqueue()
    assert refused.value.job_id == first.id
    assert [job.id for job in await hf.jobs()] == [first.id]


@pytest.mark.case("queue-5")
async def test_the_list_can_be_kept_to_one_tenant(hf: Holdfast) -> None:
    """What another tenant has is not in it."""

    @hf.task
    async def work() -> None: ...

    ours = [await work.options(tenant="ours").enqueue() for _ in range(2)]
    await work.options(tenant="theirs").enqueue()
    assert {job.id for job in await hf.jobs(tenant="ours")} == {job.id for job in ours}
