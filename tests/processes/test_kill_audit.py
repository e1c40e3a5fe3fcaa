"""The auditor that the kill tests rely on: it must be able to find something."""

from __future__ import annotations

from holdfast import Job, State
from holdfast.store.protocol import Completion
from tests.processes import audit
from tests.processes.scene import Scene

JOBS_TABLE = {"sqlite": "holdfast_jobs", "postgres": "holdfast.jobs"}


async def test_the_auditor_notices_a_second_completion(scene: Scene) -> None:
    """A job that somebody puts back to running and completes again is found, by its illegal move and by its count."""
    job = await scene.tasks.tell_pid.enqueue()
    await complete(scene, job)
    assert list(await scene.completing_runs()) == [job.id]
    async with scene.hf.transaction() as tx:
        await tx.execute(f"UPDATE {JOBS_TABLE[scene.hf.store.name]} SET state = 'queued', locked_by = NULL")
    await complete(scene, job)
    found = audit.wrongs(await audit.moves(scene.hf))
    assert f"job {job.id} was completed 2 times" in found
    assert f"job {job.id} went from {State.COMPLETED} to {State.QUEUED}" in found
    assert f"run {job.run_id} was handed out 2 times" in found


async def complete(scene: Scene, job: Job[int]) -> None:
    store = scene.hf.store
    (claimed,) = (await store.job_claim(worker="w", machine=None, queues=["default"], tasks=["tell_pid"], limit=1)).jobs
    assert await store.job_complete_if_leased([Completion(job.id, claimed.run_id, "1")]) == {claimed.run_id}
