"""Real processes under test: started in a group of their own, watched, signalled, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.waiting import until

if TYPE_CHECKING:
    from holdfast.store.protocol import Store, WorkerRow

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """One process and its children; what it prints goes to a file, so that a full pipe cannot stop it."""

    def __init__(self, command: list[str], env: Mapping[str, str], output: Path) -> None:
        self._output = output
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        with output.open("wb") as sink:
            self._popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path.rstrip(os.pathsep), **env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_hear_ctrl_c,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def output(self) -> str:
        """What it printed so far, standard error included."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def terminate(self) -> None:
        """SIGTERM to the process alone, as an init system or a container runtime sends it."""
        self._popen.send_signal(signal.SIGTERM)

    def signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def freeze(self) -> None:
        self.signal_group(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal_group(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL to it and its children, and wait until it is gone."""
        self.signal_group(signal.SIGKILL)
        self._popen.wait(timeout=40)

    async def exited(self, timeout: float = 40) -> int:
        """Its exit code, once it has ended by itself."""
        await until(lambda: self.returncode is not None, timeout)
        assert self.returncode is not None
        return self.returncode

    async def printed(self, text: str, timeout: float = 40) -> None:
        await until(lambda: text in self.output or self._fail_if_ended(f"printing {text!r}"), timeout)

    async def registered(self, store: Store, timeout: float = 40) -> WorkerRow:
        """The row by which the store knows this worker (or a child of it), once it is there."""

        async def row() -> WorkerRow | None:
            found = [row for row in await store.worker_list() if _group_of(row.pid) == self.pid]
            if not found:
                self._fail_if_ended("registering")
            return found[0] if found else None

        return await until(row, timeout)

    def _fail_if_ended(self, before: str) -> bool:
        if self.returncode is not None:
            pytest.fail(f"the process ended with {self.returncode} before {before}; it printed:\n{self.output}")
        return False


class Processes:
    """Starts processes for one test and ends all that are left when the test is over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Process] = []

    def python(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        output = self._folder / f"process-{len(self._started) + 1}.txt"
        process = Process([sys.executable, *arguments], env or {}, output)
        self._started.append(process)
        return process

    def holdfast(self, *arguments: str, app: str, database_url: str, env: Mapping[str, str] | None = None) -> Process:
        """`holdfast --app …` with this database; `app` is such as `tests.apps.mail:hf`."""
        given = {**(env or {}), "HOLDFAST_DATABASE_URL": database_url}
        return self.python("-m", "holdfast", "--app", app, *arguments, env=given)

    def worker(self, *arguments: str, app: str, database_url: str, env: Mapping[str, str] | None = None) -> Process:
        return self.holdfast("worker", *arguments, app=app, database_url=database_url, env=env)

    def end_all(self) -> None:
        for process in self._started:
            process.kill()


def runs(pid: int) -> bool:
    """Whether this process is there and no mere entry that waits to be collected."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return line[line.rindex(")") + 2] not in "ZX"


def _hear_ctrl_c() -> None:
    """A test run in the background of a shell has SIGINT ignored, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
