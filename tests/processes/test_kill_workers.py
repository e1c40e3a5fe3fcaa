"""Workers that die in the middle of their jobs: killed, out of memory, by a segmentation fault."""

from __future__ import annotations

import random
import signal

import pytest

from holdfast import State
from tests.processes.scene import Scene
from tests.support.waiting import until

RECOVERED = "failed (worker died) - automatically retrying..."


@pytest.mark.case("L4")
@pytest.mark.usefixtures("short_lease")
async def test_a_job_whose_worker_was_killed_is_run_again_by_another(scene: Scene) -> None:
    """The reaper gives it a new run id, the old run's log stays readable, and the second attempt completes."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    scene.reaper()
    workers = {worker.pid: worker for worker in (scene.worker("--no-reap"), scene.worker("--no-reap"))}
    first = await scene.started(job)
    await until(lambda: scene.messages(first.run_id))
    workers[first.pid].kill()

    second = await scene.started(job, run_no=2)
    scene.let_go(job, run_no=2)
    assert second.pid != first.pid
    assert await job.result(timeout=60) == second.run_id != first.run_id
    newest, lost = await scene.hf.runs(job.id)
    assert (newest.outcome, newest.attempt, lost.outcome, lost.attempt) == ("completed", 2, "lost", 1)
    assert await scene.messages(first.run_id) == ["first half", f"Delivery attempt 1 {RECOVERED}"]
    assert await scene.messages(second.run_id) == ["first half", "second half"]
    assert [event.type for event in await scene.hf.events(job.id)] == ["reaper:requeued"]
    assert await scene.completing_runs() == {job.id: second.run_id}


@pytest.mark.case("L6")
@pytest.mark.usefixtures("short_lease")
async def test_a_job_that_kills_every_worker_is_given_up_after_three_attempts(scene: Scene) -> None:
    """Each attempt takes its worker down; the third is the last, and the message says so."""
    job = await scene.tasks.run_out_of_memory.enqueue(scene.folder)
    workers = scene.worker("--processes", "2")
    failed = await scene.comes_to(job, State.FAILED)
    assert failed.error_message == "Extraction failed after 3 attempts (machine crash or timeout)"
    assert [run.outcome for run in await scene.hf.runs(job.id)] == ["failed", "lost", "lost"]
    assert len({mark.pid for mark in scene.marks("started", job)}) == 3
    assert workers.output.count("ended by SIGKILL") == 3
    assert await (await scene.tasks.tell_pid.enqueue()).result(timeout=60), "the workers serve on"


@pytest.mark.case("L30", "queue-7")
@pytest.mark.usefixtures("short_lease")
async def test_workers_alone_recover_the_job_of_a_killed_neighbour(scene: Scene) -> None:
    """There is no reaper process; the neighbour's own pass finds the job and its slots run it."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    first = await scene.started(job)
    neighbour = scene.worker()
    await neighbour.registered(scene.hf.store)
    dying.kill()
    second = await scene.started(job, run_no=2)
    scene.let_go(job, run_no=2)
    assert await job.result(timeout=60) == second.run_id
    assert (first.pid, second.pid) == (dying.pid, neighbour.pid)
    assert "[RECOVERY] Requeued 1 stuck jobs" in neighbour.output


@pytest.mark.case("L24")
@pytest.mark.usefixtures("short_lease")
async def test_a_segmentation_fault_in_a_worker_costs_only_the_job_that_did_it(scene: Scene) -> None:
    """The worker dies with it, and its other job is brought back by the reaper."""
    innocent = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    await scene.started(innocent)
    guilty = await scene.tasks.segfault.enqueue()
    assert await dying.exited() == -signal.SIGSEGV
    scene.worker()
    second = await scene.started(innocent, run_no=2)
    scene.let_go(innocent, run_no=2)
    assert await innocent.result(timeout=60) == second.run_id
    failed = await scene.comes_to(guilty, State.FAILED)
    assert failed.error_message == "Segfault failed after 1 attempts (machine crash or timeout)"


@pytest.mark.case("L24")
async def test_a_segmentation_fault_of_an_isolated_task_fails_its_job_alone(scene: Scene) -> None:
    """Its worker and the job beside it do not notice."""
    innocent = await scene.tasks.hold.enqueue(scene.folder)
    worker = scene.worker()
    await scene.started(innocent)
    guilty = await scene.tasks.segfault_isolated.enqueue()
    failed = await scene.comes_to(guilty, State.FAILED)
    assert (failed.error_code, failed.error_message) == ("process_crashed", "its process was ended by SIGSEGV")
    scene.let_go(innocent)
    await innocent.result(timeout=60)
    assert await (await scene.tasks.tell_pid.enqueue()).result(timeout=60) == worker.pid


@pytest.mark.case("queue-7")
@pytest.mark.usefixtures("short_lease")
async def test_no_job_is_lost_or_completed_twice_while_workers_are_killed_at_random(scene: Scene) -> None:
    """Hundreds of jobs, three workers, one after another killed in mid-run and replaced."""
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    rng = random.Random(seed)
    jobs = await scene.hf.enqueue_many([scene.tasks.work.job(scene.folder, rng.uniform(0, 0.1)) for _ in range(400)])
    workers = [scene.worker("--concurrency", "4") for _ in range(3)]
    for _ in range(8):
        enough = min(len(jobs), len(scene.marks("started")) + rng.randint(10, 40))
        await until(lambda enough=enough: len(scene.marks("started")) >= enough, 60)
        victim = rng.randrange(3)
        workers[victim].kill()
        workers[victim] = scene.worker("--concurrency", "4")
    await scene.all_ended()
    await scene.assert_all_done_once([job.id for job in jobs])
    assert len(scene.marks("started")) > len(jobs), "the kills hit no running job"


@pytest.mark.case("L5")
@pytest.mark.usefixtures("short_lease")
async def test_a_worker_killed_half_way_through_a_sync_leaves_no_trace_of_it(scene: Scene) -> None:
    """As far as there is no extraction: a task that writes in one transaction of ours ends with exactly the right rows."""
    async with scene.hf.transaction() as tx:
        await tx.execute("CREATE TABLE synced (name VARCHAR(20) PRIMARY KEY)")
        await tx.execute("INSERT INTO synced (name) VALUES ($1)", "stale")
    names = [f"dependency {number}" for number in range(20)]
    job = await scene.tasks.sync_rows.enqueue(names)
    scene.worker("--processes", "2")
    assert await job.result(timeout=60) == len(names)
    async with scene.hf.transaction() as tx:
        found = [row["name"] for row in await tx.fetch("SELECT name FROM synced")]
    assert sorted(found) == sorted(names)
    assert [run.outcome for run in await scene.hf.runs(job.id)] == ["completed", "lost"]
