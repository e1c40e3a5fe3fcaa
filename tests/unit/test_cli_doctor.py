"""`holdfast doctor` finds what is wrong, on both databases."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.clock import ManualClock


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)


def examine(url: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["--database", url, "doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is (code == 0)
    return code, {check["name"]: check for check in answer["checks"]}


def test_a_sound_installation_passes(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing must be mended; what is only worth a look is a warning."""
    code, checks = examine(database_url, capsys)
    assert code == 0
    expected = {
        "version",
        "schedules",
        "retention",
        "sizes",
        "app",
        "settings",
        "database",
        "schema",
        "clock",
        "engine",
        "wake-ups",
        "workers",
        "unserved jobs",
        "leases",
    }
    of_postgres = {"permissions", "transactions", "indexes", "dead rows", "autovacuum"}
    assert set(checks) == expected | (of_postgres if database_url.startswith("postgresql") else set())
    assert {name for name, check in checks.items() if check["status"] == "warning"} == {"app", "workers"}


def leave_a_job_behind(database_url: str, *, claimed: bool) -> None:
    """A job of long ago."""

    async def leave() -> None:
        hf = Holdfast(database_url, clock=ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))

        @hf.task
        async def work() -> None: ...

        await work.enqueue()
        if claimed:
            await hf.store.job_claim(worker="gone", machine=None, queues=["default"], tasks=["work"], limit=1)
        await hf.aclose()

    asyncio.run(leave())


def test_a_job_whose_worker_died_long_ago_is_an_error(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An expired lease that nobody rescued means that no reaper runs."""
    leave_a_job_behind(database_url, claimed=True)
    code, checks = examine(database_url, capsys)
    assert (code, checks["leases"]["status"]) == (1, "error")
    assert "holdfast reaper" in checks["leases"]["advice"]


@pytest.mark.case("L26")
def test_a_job_that_no_live_worker_knows_is_an_error(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The task and its queue are named."""
    leave_a_job_behind(database_url, claimed=False)
    code, checks = examine(database_url, capsys)
    assert (code, checks["unserved jobs"]["status"]) == (1, "error")
    assert "1 of work in queue default" in checks["unserved jobs"]["message"]


def test_an_unmigrated_database_is_an_error_with_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The advice is the command that helps."""
    code, checks = examine(f"sqlite:///{tmp_path}/new.db", capsys)
    assert (code, checks["schema"]["status"]) == (1, "error")
    assert "holdfast migrate" in checks["schema"]["advice"]


def test_a_database_that_is_away_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Doctor still answers, in its own form."""
    code, checks = examine("postgresql://127.0.0.1:9/jobs", capsys)
    assert (code, checks["database"]["status"]) == (1, "error")


def test_a_broken_app_is_an_error_beside_the_other_checks(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One broken thing does not hide the others."""
    Path("tasks.py").write_text("import nonexistent_library", encoding="utf-8")
    code, checks = examine(database_url, capsys)
    assert (code, checks["app"]["status"], checks["schema"]["status"]) == (1, "error", "ok")
    assert "nonexistent_library" in checks["app"]["message"]


def test_a_misspelt_variable_is_noticed(
    sqlite_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everywhere else it is silently ignored."""
    monkeypatch.setenv("HOLDFAST_HEARTBEATS_SEC", "3")
    _, checks = examine(sqlite_url, capsys)
    assert checks["settings"]["advice"] == "did you mean HOLDFAST_HEARTBEAT_SEC?"
