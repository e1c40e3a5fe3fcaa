"""Processes that are frozen end by themselves and are replaced; those that are only busy go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import State
from tests.processes.scene import APP, Scene
from tests.support.processes import ROOT, Processes, runs
from tests.support.waiting import until, until_sync

STACKS = "Timeout ("
WATCHDOG = {"HOLDFAST_WATCHDOG_SEC": "2"}
A_LOOP_THAT_BLOCKS = """
import asyncio, threading
from holdfast.processes import watchdog

async def main():
    async with watchdog.watched(0.5):
        await asyncio.sleep(1)
        print("answers")
        threading.Event().wait()

asyncio.run(main())
"""
A_PROGRAM = """
import asyncio, io, sys, threading
from holdfast import Holdfast
from holdfast.processes import watchdog

real_start = threading.Thread.start

def refuse_the_heart(thread):
    if thread.name == "holdfast heart":
        raise RuntimeError("can't start new thread")
    real_start(thread)

def main():
    try:
        end = type(asyncio.run(Holdfast().run_worker(exit_when_idle=0.0, watchdog=60))).__name__
    except RuntimeError as error:
        assert "can't start" in str(error), error
        end = "RuntimeError"
    print(f"{end}, timer {watchdog._ends_at}")
"""
AT_ONCE = """
import asyncio
from holdfast.processes import watchdog
from tests.apps.killable import freeze

async def main():
    async with watchdog.watched(0.5):
        freeze()

asyncio.run(main())
"""
A_FORK = """
import os, sys
from holdfast.processes import watchdog
from tests.apps.killable import freeze

watchdog.end_in(3)
if (pid := os.fork()) == 0:
    sys.exit(7)
print("the fork ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
freeze()
"""
A_FULL_PIPE = """
import contextlib, os
from holdfast.processes import watchdog
from tests.apps.killable import freeze

os.set_blocking(2, False)
with contextlib.suppress(BlockingIOError):
    while True:
        os.write(2, bytes(4096))
os.set_blocking(2, True)
watchdog.end_in(0.5)
freeze()
"""


@pytest.mark.usefixtures("short_lease")
async def test_a_frozen_worker_is_replaced_by_its_supervisor_and_its_job_completes(scene: Scene) -> None:
    """C code keeps the interpreter lock: the process prints its stacks and ends, and another one runs the job."""
    job = await scene.tasks.freeze_once.enqueue(scene.folder)
    worker = scene.worker("--processes", "2", env=WATCHDOG)
    first = await scene.started(job)
    assert await job.result(timeout=60)
    assert not runs(first.pid)
    assert STACKS in worker.output and "in freeze_once" in worker.output
    assert f"(pid {first.pid}) ended by exit code 1 (frozen, if" in worker.output
    worker.terminate()
    assert await worker.exited() == 0


async def test_a_frozen_worker_that_is_sent_sigterm_ends(scene: Scene) -> None:
    """No handler runs any more; the watchdog ends it all the same, with exit code 1 and the stacks."""
    job = await scene.tasks.freeze_once.enqueue(scene.folder)
    worker = scene.worker(env=WATCHDOG)
    await scene.started(job)
    worker.terminate()
    assert await worker.exited() == 1
    assert STACKS in worker.output


async def test_a_supervisor_told_to_stop_ends_though_its_worker_is_frozen(scene: Scene) -> None:
    """It waits for its children, and the frozen one ends by its watchdog."""
    job = await scene.tasks.freeze_once.enqueue(scene.folder)
    worker = scene.worker("--processes", "2", env=WATCHDOG)
    await scene.started(job)
    worker.terminate()
    assert await worker.exited() == 1


@pytest.mark.parametrize("command", [("reaper", "--interval", "0.1"), ("server", "--port", "0")])
async def test_a_frozen_reaper_or_server_ends(
    scene: Scene, processes: Processes, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """With the stacks of its threads and exit code 1."""
    asked = tmp_path / "freeze"
    env = {**WATCHDOG, "HOLDFAST_TEST_FREEZE": str(asked), "HOLDFAST_JWT_SECRET": "s" * 32}
    process = processes.holdfast(*command, app=APP, database_url=scene.url, env=env)
    await process.printed("every 0.1 s" if command[0] == "reaper" else "Serving")
    asked.touch()
    assert await process.exited() == 1
    assert STACKS in process.output and "in freeze_when_asked" in process.output


async def test_a_frozen_isolated_run_ends_with_its_worker(scene: Scene) -> None:
    """Its thread that waits for the worker's end cannot act; the kernel does."""
    job = await scene.tasks.freeze_isolated.enqueue(scene.folder)
    worker = scene.worker()
    child = await scene.started(job)
    worker.kill()
    await until(lambda: not runs(child.pid))


@pytest.mark.usefixtures("short_run_limit")
async def test_a_frozen_isolated_run_ends_after_its_deadline_without_help(scene: Scene) -> None:
    """Also where its worker is there and does nothing, and where the kernel does not end it with its worker."""
    job = await scene.tasks.freeze_isolated.enqueue(scene.folder)
    worker = scene.worker()
    child = await scene.started(job)
    await scene.freeze(worker)
    await until(lambda: not runs(child.pid))


async def test_a_task_that_blocks_the_loop_for_longer_than_the_limit_is_not_ended(scene: Scene) -> None:
    """A worker whose heart beats is not frozen: its lease is kept up, and its run completes."""
    job = await scene.tasks.block_the_loop.enqueue(scene.folder)
    worker = scene.worker(env={"HOLDFAST_WATCHDOG_SEC": "4"})
    await scene.started(job)
    await worker.printed("The event loop has been blocked for")
    scene.let_go(job)
    assert await job.result(timeout=60) == job.run_id


@pytest.mark.usefixtures("short_lease")
async def test_a_worker_stopped_for_longer_than_the_limit_may_end_and_is_replaced(scene: Scene) -> None:
    """As after a long pause of its machine: its jobs have a new run by then, and complete."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    worker = scene.worker("--processes", "2", env=WATCHDOG)
    await scene.started(job)
    await scene.freeze(worker)
    scene.reaper()
    await scene.comes_to(job, State.QUEUED)
    worker.thaw()
    await scene.started(job, 2)
    scene.let_go(job, 2)
    assert await job.result(timeout=60)


async def test_a_worker_inside_another_program_has_the_watchdog_that_it_asks_for(scene: Scene, processes: Processes) -> None:
    """`run_worker(watchdog=…)` ends the whole program when it is frozen."""
    job = await scene.tasks.freeze_once.enqueue(scene.folder)
    lines = "import asyncio; from tests.apps.killable import hf; asyncio.run(hf.run_worker(watchdog=1))"
    program = processes.python("-c", lines, env={"HOLDFAST_DATABASE_URL": scene.url, "HOLDFAST_WATCHDOG_SEC": "2"})
    await scene.started(job)
    assert await program.exited() == 1
    assert "Timeout (0:00:01)" in program.output


async def test_an_event_loop_that_no_longer_answers_ends_its_process(processes: Processes) -> None:
    """That of a server or a reaper, whatever blocks it."""
    process = processes.python("-c", A_LOOP_THAT_BLOCKS)
    assert await process.exited() == 1
    assert "answers" in process.output and STACKS in process.output


async def test_a_process_that_freezes_at_once_ends(processes: Processes) -> None:
    """Before its event loop could set the timer."""
    process = processes.python("-c", AT_ONCE)
    assert await process.exited() == 1
    assert STACKS in process.output


async def test_a_program_forked_beside_the_watchdog_ends(processes: Processes) -> None:
    """It has no timer, and does not wait for one at its end; its parent still has it."""
    process = processes.python("-c", A_FORK)
    assert await process.exited() == 1
    assert "the fork ended with 7" in process.output and STACKS in process.output


def test_a_frozen_process_ends_though_its_standard_error_is_full() -> None:
    """A reader that has stopped reading does not keep it."""
    with subprocess.Popen([sys.executable, "-c", A_FULL_PIPE], stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            until_sync(lambda: process.poll() is not None)
        finally:
            process.kill()
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("before", "ends_with"),
    [
        ("threading.Thread.start = refuse_the_heart", "RuntimeError"),
        ("sys.stderr = sys.__stderr__ = io.StringIO()", "WorkerEnd"),
    ],
    ids=["its heartbeat cannot start", "standard error is replaced"],
)
async def test_a_program_goes_on_after_its_worker_with_a_watchdog(
    scene: Scene, processes: Processes, before: str, ends_with: str
) -> None:
    """However the worker ended, no timer is left that would end the program."""
    program = processes.python("-c", f"{A_PROGRAM}\n{before}\nmain()", env={"HOLDFAST_DATABASE_URL": scene.url})
    assert await program.exited() == 0, program.output
    assert f"{ends_with}, timer None" in program.output
