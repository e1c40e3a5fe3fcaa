"""A worker that is killed in the middle of a pipeline: the next run cleans up after it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from tests.support.processes import Processes, runs
from tests.support.waiting import until

APP = "tests.apps.piped"


@pytest.mark.usefixtures("short_lease")
async def test_the_folder_and_the_tools_of_a_killed_worker_are_gone_after_the_next_run(
    database_url: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool in a session of its own survives the worker; the retry ends it, removes its folder, and completes."""
    workspaces = tmp_path / "ws"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("PIPED_WORKSPACES", str(workspaces))
    monkeypatch.setenv("HOLDFAST_REAPER_INTERVAL_SEC", "0.25")
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    job = await app.piped.enqueue()
    dying = processes.worker(app=f"{APP}:hf", database_url=database_url)
    left = (await until(lambda: list(workspaces.glob("run-*/pid")), 60))[0]
    tool = int(left.read_text())
    dying.kill()
    assert runs(tool) and left.exists(), "there is nothing to clean up"
    processes.worker(app=f"{APP}:hf", database_url=database_url)
    assert await job.result(timeout=60) == "scanned"
    assert list(workspaces.iterdir()) == []
    await until(lambda: not runs(tool))
    await app.hf.aclose()
