"""A worker that is killed in the middle of an extraction's sync: the next attempt ends with exactly the right rows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.extraction import app as extraction_app
from holdfast.extraction import sync
from tests.support.extractions import components
from tests.support.processes import Processes
from tests.support.waiting import until

APP = "tests.apps.extracting"


@pytest.fixture
async def app(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModuleType]:
    """The application in this process, with a project whose first extraction found other things."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.setenv("HOLDFAST_REAPER_INTERVAL_SEC", "0.25")
    monkeypatch.setenv("EXTRACTING_MARKER", str(tmp_path / "hangs"))
    monkeypatch.setenv("EXTRACTING_HANGS_AT", "nowhere")
    for module, name in ((sync, "Statements"), (extraction_app, "BACKOFF")):
        monkeypatch.setattr(module, name, getattr(module, name))  # what the import below changes is put back afterwards
    sys.modules.pop(APP, None)
    app = importlib.import_module(APP)
    await app.hf.migrate()
    wanted, app.staged.laid = app.staged.laid, {"dependencies": components("stale", "package-000")}
    await app.staged.connect()
    await app.staged.work()
    app.staged.laid = wanted
    yield app
    await app.hf.aclose()


@pytest.mark.case("L5", "D32")
@pytest.mark.usefixtures("short_lease")
@pytest.mark.parametrize("hangs_at", ["dependencies_save", "dependencies_forget", "scan_save"])
async def test_a_worker_killed_half_way_through_the_sync_leaves_no_gap_no_duplicate_and_nothing_stale(
    app: Any, database_url: str, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch, hangs_at: str
) -> None:
    """A reader sees the rows of before until the second attempt has committed all of its own."""
    monkeypatch.setenv("EXTRACTING_HANGS_AT", hangs_at)
    job = await app.staged.extraction.start("acme", "shop")
    dying = processes.worker(app=f"{APP}:hf", database_url=database_url)
    await until((tmp_path / "hangs").exists, 60)
    dying.kill()
    assert sorted(await app.staged.purls()) == ["package-000", "stale"]
    processes.worker(app=f"{APP}:hf", database_url=database_url)
    await job.result(timeout=60)
    found = await app.staged.extraction.results("acme", "shop")
    assert (found.repository.status, (await app.hf.get(job.id)).attempt >= 2) == ("ready", True)
    assert found.dependencies == app.staged.laid["dependencies"]
    scan = found.scans["dependencies"]
    assert (scan.count, len(scan.difference.added), scan.difference.gone) == (300, 299, ["pkg:npm/stale@1.0.0"])
