"""`holdfast enqueue --wait` against a real worker, as a newcomer meets it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Process, Processes


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What `holdfast init` makes, migrated, with two tasks more."""
    folder = tmp_path / "project"
    assert holdfast(tmp_path, "init", str(folder)).returncode == 0
    with (folder / "tasks.py").open("a", encoding="utf-8") as file:
        file.write("\n@hf.task(max_attempts=1)\ndef fail() -> None:\n    raise ValueError('no such customer')\n")
    assert holdfast(folder, "migrate").returncode == 0
    return folder


def environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return {**ours, "PYTHONPATH": str(ROOT / "src")}


def holdfast(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast", *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=90)


def start_worker(project: Path, processes: Processes) -> Process:
    path = os.pathsep.join([str(project), str(ROOT / "src")])
    return processes.worker(app="tasks:hf", database_url=f"sqlite:///{project}/holdfast.db", env={"PYTHONPATH": path})


def test_a_new_project_runs_its_flaky_task(project: Path, processes: Processes) -> None:
    """After init, a job that fails once and then works prints its result and exits with 0."""
    start_worker(project, processes)
    done = holdfast(project, "enqueue", "flaky", "--wait", "--timeout", "60")
    job_id, result = done.stdout.splitlines()
    assert (done.returncode, result) == (0, '"worked at attempt 2"')
    shown = holdfast(project, "jobs", "show", job_id)
    assert "the other side hung up" in shown.stdout


def test_a_job_that_fails_exits_with_1(project: Path, processes: Processes) -> None:
    """The reason is on standard error, one line, no traceback."""
    start_worker(project, processes)
    done = holdfast(project, "enqueue", "fail", "--wait", "--timeout", "60")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no such customer" in done.stderr


async def test_ctrl_c_while_waiting_exits_with_130(project: Path, processes: Processes) -> None:
    """The job stays where it is; only the waiting ends."""
    path = os.pathsep.join([str(project), str(ROOT / "src")])
    waiting = processes.holdfast(
        "enqueue", "greet", "--wait", app="tasks:hf", database_url=f"sqlite:///{project}/holdfast.db", env={"PYTHONPATH": path}
    )
    await waiting.printed("-")
    waiting.signal_group(signal.SIGINT)
    assert await waiting.exited() == 130
    assert "Traceback" not in waiting.output
