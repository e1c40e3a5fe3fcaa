"""What the tests with real processes are told with: workers to kill, what their tasks wrote down, waiting for both."""

from __future__ import annotations

import importlib
import os
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from holdfast import Holdfast, Job, State
from holdfast.errors import StorageUnavailable
from tests.processes import audit
from tests.support.processes import Process, Processes
from tests.support.waiting import until

APP = "tests.apps.killable:hf"
PATIENCE_SECONDS = 60


def fresh_tasks() -> ModuleType:
    """The tasks, with a Holdfast that reads the environment now."""
    name = APP.split(":")[0]
    sys.modules.pop(name, None)
    return importlib.import_module(name)


class Mark(NamedTuple):
    event: str
    job_id: str
    run_id: str
    pid: int


class Scene:
    """One database, the tasks of tests/apps/killable.py on it, and the processes that serve them."""

    def __init__(self, tasks: ModuleType, url: str, folder: Path, processes: Processes) -> None:
        self.tasks = tasks
        self.hf: Holdfast = tasks.hf
        self.url = url
        self.folder = str(folder)
        self._processes = processes

    # -- processes

    def worker(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        return self._processes.worker(*arguments, app=APP, database_url=self.url, env=env)

    def reaper(self) -> Process:
        return self._processes.holdfast("reaper", "--interval", "0.05", app=APP, database_url=self.url)

    async def freeze(self, process: Process) -> None:
        """At a moment when it does not hold the write lock of an SQLite file: nobody else could write until it thaws."""

        def frozen() -> bool:
            process.freeze()
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            if self._file_is_writable():
                return True
            process.thaw()
            return False

        await until(frozen)

    def _file_is_writable(self) -> bool:
        if not self.url.startswith("sqlite:///"):
            return True
        connection = sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=0.5, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return True
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()

    # -- what tasks wrote down

    def marks(self, event: str, job: Job[Any] | None = None) -> list[Mark]:
        lines = [line for path in Path(self.folder).glob("*.marks") for line in path.read_text().splitlines()]
        parts = [line.split() for line in lines]
        found = [Mark(what, job_id, run_id, int(pid)) for what, job_id, run_id, pid in parts]
        return [mark for mark in found if mark.event == event and (job is None or mark.job_id == job.id)]

    async def started(self, job: Job[Any], run_no: int = 1) -> Mark:
        """What the job's run of this number wrote down first, once it has."""
        run_id = (await until(lambda: self._run_id(job, run_no), PATIENCE_SECONDS))[0]
        return (await until(lambda: [m for m in self.marks("started", job) if m.run_id == run_id], PATIENCE_SECONDS))[0]

    async def _run_id(self, job: Job[Any], run_no: int) -> list[str]:
        return [run.run_id for run in await self.hf.runs(job.id) if run.run_no == run_no]

    def let_go(self, job: Job[Any], run_no: int = 1) -> None:
        """Let this run of a task that holds go on to its second half."""
        Path(self.folder, f"{job.id}.go{run_no}").touch()

    # -- what the store says

    async def comes_to(self, job: Job[Any], *states: State) -> Job[Any]:
        async def there() -> Job[Any] | None:
            found = await self.hf.get(job.id)
            return found if found.state in states else None

        return await until(there, PATIENCE_SECONDS)

    async def draining(self) -> None:
        """Some worker has heard that it is to stop."""

        async def heard() -> bool:
            return any(row.draining for row in await self.hf.workers())

        await until(heard, PATIENCE_SECONDS)

    async def all_ended(self, timeout: float = 60) -> None:
        """Nothing waits and nothing runs any more."""

        async def nothing_active() -> bool:
            try:
                counts = await self.hf.store.job_counts()
            except StorageUnavailable:
                return False
            return not counts.get("queued") and not counts.get("running")

        await until(nothing_active, timeout)

    async def messages(self, run_id: str) -> list[str]:
        return [line.message for line in await self.hf.logs(run_id)]

    async def completing_runs(self) -> dict[str, str]:
        """Job id -> the one run that completed it; fails if the auditor saw anything that must not be."""
        seen = await audit.moves(self.hf)
        assert audit.wrongs(seen) == []
        return {job_id: runs[0] for job_id, runs in audit.completions(seen).items()}

    async def assert_all_done_once(self, job_ids: list[str]) -> None:
        """Each of these is there and completed, by a run that went through to its end, and by no other."""
        completed = await self.completing_runs()
        assert set(job_ids) <= set(completed), "acknowledged jobs are missing or not completed"
        went_through = {(mark.job_id, mark.run_id) for mark in self.marks("done")}
        assert set(completed.items()) <= went_through


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
