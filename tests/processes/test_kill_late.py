"""Workers that are not dead but late: frozen past their lease or their deadline, and two reapers at one time."""

from __future__ import annotations

import re

import pytest

from holdfast import State
from tests.processes.scene import Scene
from tests.support.waiting import until

TAKEN = "was taken from this worker"
REAPED = "Delivery attempt 1 failed (machine unresponsive) - automatically retrying..."
LATE_JOBS = 300


@pytest.mark.case("L15", "L28")
@pytest.mark.usefixtures("short_lease")
async def test_a_worker_that_was_frozen_past_its_lease_can_change_nothing(scene: Scene) -> None:
    """Thawed, its runs go on to their end, but the jobs belong to others by then: nothing of it is accepted."""
    jobs = [await task.enqueue(scene.folder) for task in (scene.tasks.hold, scene.tasks.hold_in_thread)]
    frozen = scene.worker("--no-reap")
    for job in jobs:
        old = await scene.started(job)
        await until(lambda run_id=old.run_id: scene.messages(run_id))
    await scene.freeze(frozen)
    other = await scene.worker().registered(scene.hf.store)
    for job in jobs:
        await scene.started(job, run_no=2)
        scene.let_go(job, run_no=1)

    frozen.thaw()
    await until(lambda: frozen.output.count(TAKEN) == 2)
    await until(lambda: scene.marks("done", jobs[1]))
    for job in jobs:
        now = await scene.hf.get(job.id)
        assert (now.state, now.run_no, now.locked_by) == (State.RUNNING, 2, other.id)
    frozen.terminate()
    assert await frozen.exited() == 0

    for job in jobs:
        scene.let_go(job, run_no=2)
        second, first = await scene.hf.runs(job.id)
        assert await job.result(timeout=60) == second.run_id
        assert await scene.messages(first.run_id) == ["first half", REAPED]
    assert await scene.completing_runs() == {job.id: (await scene.hf.runs(job.id))[0].run_id for job in jobs}


@pytest.mark.case("L7")
@pytest.mark.usefixtures("short_run_limit")
async def test_a_run_beyond_its_limit_is_ended_by_its_worker_or_else_by_the_reaper(scene: Scene) -> None:
    """The first worker is frozen and cannot; the reaper takes the job although its lease is valid. The second can."""
    job = await scene.tasks.never_end.options(max_attempts=2).enqueue(scene.folder)
    frozen = scene.worker("--no-reap")
    await scene.started(job)
    await scene.freeze(frozen)
    scene.reaper()
    scene.worker("--no-reap")
    failed = await scene.comes_to(job, State.FAILED)
    assert (failed.attempt, failed.error_code) == (2, "deadline_exceeded")
    assert failed.error_message == "took longer than the 3 s it may take"
    by_worker, by_reaper = await scene.hf.runs(job.id)
    assert (by_worker.outcome, by_reaper.outcome, by_reaper.error_code) == ("failed", "lost", "deadline_exceeded")
    reaped, *_ = await scene.hf.events(job.id)
    assert (reaped.type, reaped.data["reason"]) == ("reaper:requeued", "deadline_exceeded")


@pytest.mark.case("L14", "recovery-5")
async def test_two_reapers_at_the_same_moment_handle_each_job_once(scene: Scene) -> None:
    """Both wait for the very commit that ends hundreds of leases: each job gets one event and one entry in its history."""
    hold, half = scene.tasks.hold, LATE_JOBS // 2
    again = await scene.hf.enqueue_many([hold.job(scene.folder) for _ in range(half)])
    given_up = await scene.hf.enqueue_many([hold.options(max_attempts=1).job(scene.folder) for _ in range(half)])
    await scene.hf.store.job_claim(worker="gone", machine=None, queues=["default"], tasks=["hold"], limit=LATE_JOBS)
    reapers = [scene.reaper(), scene.reaper()]
    for reaper in reapers:
        await reaper.printed("Reaper: ")
    await end_all_leases_at_once(scene, waiting=len(reapers))
    await until(lambda: nothing_runs(scene), 60)
    for reaper in reapers:
        reaper.terminate()
        assert await reaper.exited() == 0
        assert "pass failed" not in reaper.output, "they were in each other's way"

    for jobs, event, outcome in ((again, "reaper:requeued", "lost"), (given_up, "reaper:failed(timeout)", "failed")):
        for job in jobs:
            assert [e.type for e in await scene.hf.events(job.id)] == [event]
            assert [run.outcome for run in await scene.hf.runs(job.id)] == [outcome]
    said = re.findall(r"Requeued (\d+) stuck jobs, failed (\d+)", "".join(reaper.output for reaper in reapers))
    assert [sum(map(int, counts)) for counts in zip(*said, strict=True)] == [half, half]


async def end_all_leases_at_once(scene: Scene, *, waiting: int) -> None:
    """Under a lock that nobody gets past; it is let go when so many others stand before it."""
    if scene.hf.store.name == "sqlite":
        async with scene.hf.transaction() as tx:
            await tx.execute("UPDATE holdfast_jobs SET lease_expires_at = 1")
        return

    async def all_wait() -> bool:
        async with scene.hf.transaction() as other:
            rows = await other.fetch("SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'holdfast.jobs'::regclass")
        return len(rows) >= waiting

    async with scene.hf.transaction() as tx:
        await tx.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
        await tx.execute("UPDATE holdfast.jobs SET lease_expires_at = now() - interval '1 hour'")
        await until(all_wait)


async def nothing_runs(scene: Scene) -> bool:
    return not (await scene.hf.store.job_counts()).get("running")
