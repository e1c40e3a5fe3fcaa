"""Workers that are killed while their lease has five minutes to go: where death is certain, their jobs run again at once."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Job
from tests.processes.scene import Mark, Scene
from tests.support.processes import Process, Processes
from tests.support.waiting import until

LEASE_SECONDS = 300.0
SUPERVISOR = """
import os, signal, sys
from pathlib import Path
from holdfast.processes import supervisor

supervisor.BACKOFF_SECONDS = (3600.0, 3600.0)
die = supervisor.Child("dying", lambda: os.kill(os.getpid(), signal.SIGKILL))
supervisor.Supervisor([die], print, lambda: Path(sys.argv[1]).touch()).run()
"""


@pytest.fixture(autouse=True)
def rare_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is missed while a test lasts, unless it asks for more."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "100")


def without_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found by the reaper's next pass: it does not come. For processes that start from now on."""
    monkeypatch.setenv("HOLDFAST_REAPER_INTERVAL_SEC", "100000")


async def runs_again(scene: Scene, job: Job[Any], first: Mark) -> Mark:
    """Its second run, while the first one's lease goes on."""
    second = await scene.started(job, run_no=2)
    scene.let_go(job, run_no=2)
    assert await job.result(timeout=60) == second.run_id != first.run_id
    newest, lost = await scene.hf.runs(job.id)
    assert (newest.outcome, lost.outcome, lost.error_code) == ("completed", "lost", "worker_died")
    assert lost.started_at is not None and newest.started_at is not None
    assert (newest.started_at - lost.started_at).total_seconds() < LEASE_SECONDS
    return second


@pytest.mark.case("recovery-9", "L4")
async def test_the_job_of_a_killed_child_of_a_supervisor_runs_again_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its sibling takes it or the process that replaces it."""
    without_passes(monkeypatch)
    job = await scene.tasks.hold.enqueue(scene.folder)
    scene.worker("--processes", "2")
    first = await scene.started(job)
    os.kill(first.pid, signal.SIGKILL)
    await runs_again(scene, job, first)


@pytest.mark.case("recovery-9")
async def test_a_supervisor_rescues_before_it_starts_the_child_again(processes: Processes, tmp_path: Path) -> None:
    """Also while a child that crashed often has to wait for its next start."""
    rescued = tmp_path / "rescued"
    processes.python("-c", SUPERVISOR, str(rescued))
    await until(rescued.exists)


@pytest.mark.case("recovery-9")
async def test_a_worker_that_starts_looks_for_the_one_that_it_replaces(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single worker that an init system starts again need not wait for a pass."""
    without_passes(monkeypatch)
    job = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    first = await scene.started(job)
    dying.kill()
    successor = scene.worker()
    assert (await runs_again(scene, job, first)).pid == successor.pid


@pytest.mark.case("recovery-9", "L30")
async def test_a_pass_of_a_neighbour_sees_that_the_process_is_gone(scene: Scene) -> None:
    """On one machine no lease and no heartbeat is waited for."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    first = await scene.started(job)
    neighbour = scene.worker()
    await neighbour.registered(scene.hf.store)
    dying.kill()
    assert (await runs_again(scene, job, first)).pid == neighbour.pid


@pytest.mark.case("recovery-9")
async def test_a_heartbeat_of_a_neighbour_finds_a_dead_worker(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its process on SQLite, by its session on PostgreSQL; it wakes the reaper, whose next pass would be late."""
    without_passes(monkeypatch)
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "1")
    job = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    first = await scene.started(job)
    neighbour = scene.worker()
    await neighbour.registered(scene.hf.store)
    dying.kill()
    assert (await runs_again(scene, job, first)).pid == neighbour.pid


async def as_on_another_host(scene: Scene, worker: Process) -> None:
    """Its process says nothing to others: only its session is left as a sign."""
    row = await worker.registered(scene.hf.store)
    async with scene.hf.transaction() as tx:
        await tx.execute("UPDATE holdfast.workers SET process = NULL WHERE id = $1", row.id)


@pytest.mark.case("recovery-9")
async def test_a_worker_on_another_host_notices_that_a_session_has_ended(
    postgres_scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its next heartbeats find the silence, and wake its reaper without waiting for a pass."""
    without_passes(monkeypatch)
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "1")
    scene = postgres_scene
    job = await scene.tasks.hold.enqueue(scene.folder)
    dying = scene.worker()
    first = await scene.started(job)
    neighbour = scene.worker()
    await neighbour.registered(scene.hf.store)
    await as_on_another_host(scene, dying)
    dying.kill()
    assert (await runs_again(scene, job, first)).pid == neighbour.pid


@pytest.mark.case("recovery-10", "L13")
async def test_a_frozen_worker_keeps_its_job_for_its_lease(postgres_scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It missed many heartbeats, but its process and its session are there: thawed, it goes on where it was."""
    monkeypatch.setenv("HOLDFAST_HEARTBEAT_SEC", "0.25")
    scene = postgres_scene
    job = await scene.tasks.hold.enqueue(scene.folder)
    frozen = scene.worker()
    first = await scene.started(job)
    row = await frozen.registered(scene.hf.store)
    neighbour = scene.worker()
    await neighbour.registered(scene.hf.store)
    await scene.freeze(frozen)
    since = datetime.now(UTC)

    async def silent_for_many_heartbeats() -> bool:
        seen = {worker.id: worker.last_seen_at for worker in await scene.hf.workers()}
        newest = max(at for at in seen.values() if at is not None)
        return (newest - (seen[row.id] or since)).total_seconds() > 3

    await until(silent_for_many_heartbeats, 60)
    assert [run.run_id for run in await scene.hf.runs(job.id)] == [first.run_id]
    frozen.thaw()
    scene.let_go(job)
    assert await job.result(timeout=60) == first.run_id
