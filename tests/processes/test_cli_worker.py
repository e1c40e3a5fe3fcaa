"""`holdfast worker`, `dev` and `reaper` as real processes: signals, crashes, tasks that hang."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Holdfast, State
from holdfast.job import Job
from holdfast.store.protocol import WorkerRow
from tests.support.processes import ROOT, Process, Processes, runs
from tests.support.waiting import until

PATIENCE_SECONDS = 60
APP = """
import asyncio, threading, time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

@hf.task
async def quick() -> str:
    return "done"

@hf.task
async def wait_for(path: str) -> str:
    while not Path(path).exists():
        await asyncio.sleep(0.01)
    return "it came"

@hf.task(timeout=0.2, max_attempts=1, isolate=False)
def hang_in_thread() -> None:
    threading.Event().wait()

@hf.task(timeout=0.2, max_attempts=1)
async def block_the_loop() -> None:
    threading.Event().wait()
"""


class Scene:
    """An app in a folder of its own, its database, and the processes that serve it."""

    def __init__(self, folder: Path, url: str, processes: Processes) -> None:
        self.folder = folder
        self.url = url
        self.hf = Holdfast(url)
        self._processes = processes
        (folder / "hanging_app.py").write_text(APP, encoding="utf-8")

    def start(self, *arguments: str, app: str = "hanging_app:hf", **env: str) -> Process:
        path = os.pathsep.join([str(self.folder), str(ROOT / "src")])
        return self._processes.holdfast(*arguments, app=app, database_url=self.url, env={"PYTHONPATH": path, **env})

    async def enqueue(self, task: str, **args: str) -> Job[str]:
        """By name alone: this process does not know the tasks."""
        if task not in self.hf.tasks:

            @self.hf.task(name=task, max_attempts=1, timeout=0.2 if task in ("hang_in_thread", "block_the_loop") else None)
            async def stand_in(path: str = "") -> str:
                return path

        return await self.hf.enqueue(task, args)

    async def workers(self, count: int) -> list[WorkerRow]:
        """Once there are so many."""

        async def rows() -> list[WorkerRow] | None:
            found = await self.hf.workers()
            return found if len(found) == count else None

        return await until(rows, PATIENCE_SECONDS)

    async def runs(self, job: Job[str]) -> None:
        """Once it does, or has done so: a run of a moment may be over before anybody looks."""

        async def begun() -> bool:
            return (await self.hf.get(job.id)).run_no > 0

        await until(begun, PATIENCE_SECONDS)


@pytest.fixture
async def scene(tmp_path: Path, database_url: str, processes: Processes) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, database_url, processes)
    yield made
    await made.hf.aclose()


@pytest.fixture
async def sqlite_scene(tmp_path: Path, sqlite_url: str, processes: Processes) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, sqlite_url, processes)
    yield made
    await made.hf.aclose()


@pytest.mark.case("queue-8")
async def test_a_worker_serves_until_idle(scene: Scene) -> None:
    """It says who it is, runs what is there, and ends by itself with 0."""
    job = await scene.enqueue("quick")
    worker = scene.start("worker", "--exit-when-idle", "0.1", "--concurrency", "3", "--queues", "default,mail")
    assert await job.result(timeout=PATIENCE_SECONDS) == "done"
    assert await worker.exited() == 0
    (line,) = worker.output.splitlines()
    assert line.startswith("Worker ")
    assert "queues default, mail, 4 tasks (block_the_loop, hang_in_thread, quick, wait_for), concurrency 3" in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_jobs_finish(sqlite_scene: Scene, tmp_path: Path, number: signal.Signals) -> None:
    """The worker claims no more, waits for what runs, and ends with 0."""
    job = await sqlite_scene.enqueue("wait_for", path=str(tmp_path / "go"))
    worker = sqlite_scene.start("worker")
    await sqlite_scene.runs(job)
    worker.signal_group(number)
    await until_draining(sqlite_scene)
    (tmp_path / "go").touch()
    assert await worker.exited() == 0
    assert await job.result(timeout=0) == "it came"


async def test_a_second_signal_gives_the_jobs_back(sqlite_scene: Scene) -> None:
    """The grace period ends at once and the job waits in the queue with its attempts untouched."""
    job = await sqlite_scene.enqueue("wait_for", path="never")
    worker = sqlite_scene.start("worker")
    await sqlite_scene.runs(job)
    worker.terminate()
    await until_draining(sqlite_scene)
    worker.terminate()
    assert await worker.exited() == 0
    job = await sqlite_scene.hf.get(job.id)
    assert (job.state, job.attempt) == (State.QUEUED, 0)


async def test_grace_is_how_long_a_stopped_worker_waits(sqlite_scene: Scene) -> None:
    """`--grace 0` gives running jobs back at the first signal."""
    job = await sqlite_scene.enqueue("wait_for", path="never")
    worker = sqlite_scene.start("worker", "--grace", "0")
    await sqlite_scene.runs(job)
    worker.terminate()
    assert await worker.exited() == 0
    assert (await sqlite_scene.hf.get(job.id)).state is State.QUEUED


async def test_a_worker_with_a_hanging_thread_replaces_itself(sqlite_scene: Scene) -> None:
    """The same process id starts anew, fails the job by its deadline, and goes on serving."""
    worker = sqlite_scene.start("worker", "--concurrency", "1")
    first = await worker.registered(sqlite_scene.hf.store)
    hanging, next_one = await sqlite_scene.enqueue("hang_in_thread"), await sqlite_scene.enqueue("quick")
    assert await next_one.result(timeout=PATIENCE_SECONDS) == "done"

    async def successor() -> WorkerRow | None:
        row = await worker.registered(sqlite_scene.hf.store)
        return row if row.id != first.id else None

    second = await until(successor, PATIENCE_SECONDS)
    assert (await sqlite_scene.hf.get(hanging.id)).error_code == "deadline_exceeded"
    assert first.pid == second.pid == worker.pid
    worker.terminate()
    assert await worker.exited() == 0


async def test_a_worker_whose_loop_is_blocked_replaces_itself(sqlite_scene: Scene) -> None:
    """Nobody can cancel such a task; the heart fences it off and the process starts anew."""
    worker = sqlite_scene.start("worker")
    first = await worker.registered(sqlite_scene.hf.store)
    hanging = await sqlite_scene.enqueue("block_the_loop")
    await sqlite_scene.runs(hanging)
    next_one = await sqlite_scene.enqueue("quick")
    assert await next_one.result(timeout=PATIENCE_SECONDS) == "done"
    assert (await sqlite_scene.hf.get(hanging.id)).error_code == "deadline_exceeded"
    assert (await sqlite_scene.hf.get(next_one.id)).locked_by != first.id
    assert worker.returncode is None


async def test_two_processes_share_the_work_and_end_together(scene: Scene) -> None:
    """`--processes 2` is two workers, and one signal to their parent stops both."""
    parent = scene.start("worker", "--processes", "2")
    rows = await scene.workers(2)
    assert parent.pid not in {row.pid for row in rows}
    parent.terminate()
    assert await parent.exited() == 0
    assert await scene.hf.workers() == []


async def test_ctrl_c_counts_once_for_each_of_several_processes(sqlite_scene: Scene, tmp_path: Path) -> None:
    """The terminal signals the whole group; running jobs keep their grace period all the same."""
    job = await sqlite_scene.enqueue("wait_for", path=str(tmp_path / "go"))
    parent = sqlite_scene.start("worker", "--processes", "2")
    await sqlite_scene.workers(2)
    await sqlite_scene.runs(job)
    parent.signal_group(signal.SIGINT)
    await until_draining(sqlite_scene)
    (tmp_path / "go").touch()
    assert await parent.exited() == 0
    assert await job.result(timeout=0) == "it came"


async def test_a_process_that_crashed_is_started_again(sqlite_scene: Scene) -> None:
    """The others go on meanwhile."""
    parent = sqlite_scene.start("worker", "--processes", "2")
    before = {row.id for row in await sqlite_scene.workers(2)}
    os.kill((await sqlite_scene.hf.workers())[0].pid, signal.SIGKILL)
    await parent.printed("ended by SIGKILL; it is started again in 0.5 s")

    async def newcomer() -> bool:
        return bool({row.id for row in await sqlite_scene.hf.workers()} - before)

    await until(newcomer, PATIENCE_SECONDS)
    parent.terminate()
    assert await parent.exited() == 0


async def test_a_process_that_hangs_is_replaced_by_its_supervisor(sqlite_scene: Scene) -> None:
    """Its successor serves what waited behind the hanging task."""
    parent = sqlite_scene.start("worker", "--processes", "2", "--concurrency", "1")
    await sqlite_scene.workers(2)
    await sqlite_scene.enqueue("hang_in_thread")
    await parent.printed("hangs and is replaced")
    await sqlite_scene.workers(2)
    parent.terminate()
    assert await parent.exited() == 0


async def test_idle_processes_end_by_themselves(sqlite_scene: Scene) -> None:
    """One that ended idle is not started again."""
    parent = sqlite_scene.start("worker", "--processes", "2", "--exit-when-idle", "0.1")
    assert await parent.exited() == 0
    assert parent.output.count("Worker ") == 2


async def test_no_worker_outlives_its_killed_supervisor(sqlite_scene: Scene) -> None:
    """Not even SIGKILL leaves workers behind that nobody looks after."""
    parent = sqlite_scene.start("worker", "--processes", "2")
    await sqlite_scene.workers(2)
    os.kill(parent.pid, signal.SIGKILL)

    async def all_gone() -> bool:
        return not await sqlite_scene.hf.workers()

    await until(all_gone, PATIENCE_SECONDS)


async def test_a_broken_app_ends_all_processes_with_2(sqlite_scene: Scene) -> None:
    """What another start would only repeat is not repeated."""
    (sqlite_scene.folder / "broken_app.py").write_text("import nonexistent_library", encoding="utf-8")
    parent = sqlite_scene.start("worker", "--processes", "2", app="broken_app:hf")
    assert await parent.exited() == 2
    assert "No module named 'nonexistent_library'" in parent.output
    assert "Traceback" not in parent.output


async def test_an_unmigrated_database_ends_a_worker_with_5(tmp_path: Path, processes: Processes) -> None:
    """A worker never makes a schema by itself."""
    scene = Scene(tmp_path, f"sqlite:///{tmp_path}/new.db", processes)
    worker = scene.start("worker")
    assert await worker.exited() == 5
    assert "holdfast migrate" in worker.output


async def test_dev_does_everything_and_keeps_it_running(tmp_path: Path, processes: Processes) -> None:
    """It migrates, starts a worker when there is work and another when that crashed; Ctrl+C ends it with 0, and them."""
    scene = Scene(tmp_path, f"sqlite:///{tmp_path}/new.db", processes)
    quick = {"HOLDFAST_MACHINE_WAIT_SEC": "0.1", "HOLDFAST_POLL_IDLE_SEC": "1", "HOLDFAST_MACHINE_FOLDER": f"{tmp_path}/m"}
    dev = scene.start("dev", **quick)
    await dev.printed("Machines: local", timeout=PATIENCE_SECONDS)
    await dev.printed("Reaper: ")
    await dev.printed("Serving http://127.0.0.1:", timeout=PATIENCE_SECONDS)
    assert await (await scene.enqueue("quick")).result(timeout=PATIENCE_SECONDS) == "done"
    (row,) = await scene.workers(1)
    os.kill(row.pid, signal.SIGKILL)
    assert await (await scene.enqueue("quick")).result(timeout=PATIENCE_SECONDS) == "done"
    dev.signal_group(signal.SIGINT)
    assert await dev.exited() == 0
    assert dev.output.endswith("Stopped.\n")
    left = [row.pid for row in await scene.hf.workers()]
    await until(lambda: not any(map(runs, left)), PATIENCE_SECONDS)
    await scene.hf.aclose()


async def test_the_reaper_survives_a_database_that_is_not_ready(tmp_path: Path, processes: Processes) -> None:
    """It complains each time and works as soon as it can."""
    scene = Scene(tmp_path, f"sqlite:///{tmp_path}/new.db", processes)
    reaper = processes.python("-m", "holdfast", "--database", scene.url, "reaper", "--interval", "0.05")
    await reaper.printed("The reaper's pass failed")
    await scene.hf.migrate()
    job = await scene.enqueue("quick")
    (claimed,) = (
        await scene.hf.store.job_claim(worker="gone", machine=None, queues=["default"], tasks=["quick"], limit=1)
    ).jobs
    assert claimed.id == job.id
    async with scene.hf.transaction() as tx:
        await tx.execute("UPDATE holdfast_jobs SET lease_expires_at = 1")
    await reaper.printed("[RECOVERY] Requeued 0 stuck jobs, failed 1 exhausted jobs")
    reaper.terminate()
    assert await reaper.exited() == 0
    await scene.hf.aclose()


async def until_draining(scene: Scene) -> None:
    """The worker that runs something has heard the signal."""

    async def draining() -> bool:
        return any(row.draining for row in await scene.hf.workers())

    await until(draining)
