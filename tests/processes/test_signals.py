"""Workers that are told to stop, and workers that stop by themselves when there is nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Job, State
from tests.processes.scene import Scene, is_alive
from tests.support.processes import ROOT, Process, Processes
from tests.support.waiting import until

A_STOP_DURING_THE_START = """
import os, random, signal, sys, threading, time
from holdfast.processes.supervisor import Child, Supervisor

def supervise(seed):
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, random.Random(seed).uniform(0.0001, 0.05))
    os._exit(Supervisor([Child(str(n), threading.Event().wait) for n in range(16)], print).run())

def ends(seed):
    if (pid := os.fork()) == 0:
        supervise(seed)
    until = time.monotonic() + 15
    while time.monotonic() < until:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return True
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False

print("did not end:", [seed for seed in range(int(sys.argv[1])) if not ends(seed)])
"""


async def hold_three(scene: Scene) -> tuple[Job[Any], Job[Any], Job[Any]]:
    """A job on the event loop, one in a thread, one in a process of its own."""
    tasks = scene.tasks
    return (
        await tasks.hold.enqueue(scene.folder),
        await tasks.hold_in_thread.enqueue(scene.folder),
        await tasks.hold_isolated.enqueue(scene.folder),
    )


async def assert_given_back(scene: Scene, *jobs: Job[Any]) -> None:
    for job in jobs:
        now = await scene.hf.get(job.id)
        assert (now.status, now.attempt, now.locked_by, now.lease_expires_at) == ("queued", 0, None, None)
        assert [run.outcome for run in await scene.hf.runs(job.id)] == ["released"]


@pytest.mark.case("L20")
async def test_sigterm_lets_jobs_end_within_the_grace_and_gives_the_rest_back(scene: Scene) -> None:
    """No new claim; what ends in time is completed, the rest is queued at once and uncounted; exit 0."""
    jobs = await hold_three(scene)
    worker = scene.worker("--concurrency", "3", "--grace", "6")
    isolated = [await scene.started(job) for job in jobs][2]
    never_claimed = await scene.tasks.tell_pid.enqueue()
    worker.terminate()
    await scene.draining()
    scene.let_go(jobs[0])
    assert await jobs[0].result(timeout=60)
    assert await worker.exited() == 0
    await assert_given_back(scene, *jobs[1:])
    assert (await scene.hf.get(never_claimed.id)).run_no == 0
    await until(lambda: not is_alive(isolated.pid))


async def test_sigterm_while_the_app_is_imported_is_a_good_end(tmp_path: Path, processes: Processes) -> None:
    """A deploy may change its mind early: exit 0, and no word of an app that cannot be imported."""
    (tmp_path / "slow_app.py").write_text("import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.1)\n")
    path = f"{tmp_path}:{ROOT / 'src'}"
    url = f"sqlite:///{tmp_path}/jobs.db"
    worker = processes.worker(app="slow_app:hf", database_url=url, env={"PYTHONPATH": path})
    await worker.printed("importing")
    worker.terminate()
    assert await worker.exited() == 0
    assert "cannot be imported" not in worker.output


async def test_sigterm_while_a_supervisor_starts_its_children_reaches_each_of_them(processes: Processes) -> None:
    """Sixteen children that wait for nothing else; the signal comes at seeded moments while they are forked."""
    supervisors = processes.python("-c", A_STOP_DURING_THE_START, "20")
    assert await supervisors.exited(timeout=200) == 0
    assert "did not end: []" in supervisors.output


@pytest.mark.case("L20")
async def test_a_second_sigterm_ends_the_grace(scene: Scene) -> None:
    """Ten minutes of grace are over at once; every kind of task is given back, uncounted; exit 0."""
    jobs = await hold_three(scene)
    worker = scene.worker("--grace", "600")
    isolated = [await scene.started(job) for job in jobs][2]
    worker.terminate()
    await scene.draining()
    worker.terminate()
    assert await worker.exited() == 0
    await assert_given_back(scene, *jobs)
    await until(lambda: not is_alive(isolated.pid))


@pytest.mark.case("L25")
async def test_a_job_enqueued_while_a_worker_exits_idle_is_run_or_stays_queued(scene: Scene) -> None:
    """Jobs come one by one until the worker has left: each is completed or waits untouched, and the next worker has it."""
    jobs: list[Job[Any]] = []
    for _ in range(3):
        worker = scene.worker("--exit-when-idle", "0")
        await enqueue_until_it_leaves(scene, worker, jobs)
        assert worker.returncode == 0
        for job in jobs:
            now = await scene.hf.get(job.id)
            assert now.state is State.COMPLETED or (now.status, now.attempt) == ("queued", 0)
    assert await scene.worker("--exit-when-idle", "0").exited() == 0
    assert {(await scene.hf.get(job.id)).state for job in jobs} == {State.COMPLETED}
    assert set(await scene.completing_runs()) == {job.id for job in jobs}


async def enqueue_until_it_leaves(scene: Scene, worker: Process, jobs: list[Job[Any]]) -> None:
    await worker.printed("Worker ")

    async def enqueue_one() -> bool:
        jobs.append(await scene.tasks.tell_pid.enqueue())
        return worker.returncode is not None

    await until(enqueue_one, 60)


@pytest.mark.case("L29", "life-5")
async def test_a_worker_does_not_exit_idle_while_a_job_runs(scene: Scene) -> None:
    """The job beats on for many times the idle time and the worker still takes others; it leaves when all have ended."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    worker = scene.worker("--exit-when-idle", "0.05", env={"HOLDFAST_HEARTBEAT_SEC": "0.1"})
    await scene.started(job)

    async def beaten_for_long() -> bool:
        now = await scene.hf.get(job.id)
        assert now.started_at
        return bool(now.last_heartbeat_at and (now.last_heartbeat_at - now.started_at).total_seconds() > 0.5)

    await until(beaten_for_long, 60)
    assert await (await scene.tasks.tell_pid.enqueue()).result(timeout=60) == worker.pid
    scene.let_go(job)
    assert await worker.exited() == 0
    assert await job.result(timeout=0) == job.run_id


@pytest.mark.case("C27")
async def test_a_second_worker_for_one_job_finds_nothing_and_exits_with_0(scene: Scene) -> None:
    """One machine too many is harmless: the first has the job, the second leaves while it still runs."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    first = scene.worker("--exit-when-idle", "0.05")
    await scene.started(job)
    second = scene.worker("--exit-when-idle", "0.05")
    assert await second.exited() == 0
    assert first.returncode is None
    scene.let_go(job)
    assert await first.exited() == 0
    assert [run.outcome for run in await scene.hf.runs(job.id)] == ["completed"]
