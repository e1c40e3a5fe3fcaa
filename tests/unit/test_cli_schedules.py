"""Schedules and batches on the command line, on both databases."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main

TASKS = """
from holdfast import Holdfast
hf = Holdfast()

@hf.task
async def report(kind: str, n: int = 1) -> None: ...
"""

Command = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def holdfast(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Calls the command with --json in a folder with tasks of its own; the exit code, the answer, the error."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "scheduled_tasks.py").write_text(TASKS)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    monkeypatch.delitem(sys.modules, "scheduled_tasks", raising=False)

    def run(*arguments: str) -> tuple[int, Any, str]:
        sys.modules.pop("scheduled_tasks", None)
        capsys.readouterr()
        code = main(("--app", "scheduled_tasks:hf", "--json", *arguments))
        printed = capsys.readouterr()
        return code, json.loads(printed.out) if printed.out else None, printed.err

    return run


def test_the_life_of_a_schedule(holdfast: Command) -> None:
    """Set, list, pause, resume, run, remove; the arguments are checked against the task."""
    times = ("--cron", "0 8 * * mon-fri", "--tz", "Europe/Paris")
    code, made, _ = holdfast("schedules", "set", "morning", "report", "-a", "kind=daily", *times, "--tenant", "acme")
    assert (code, made["args"], made["cron"], made["tz"]) == (0, {"kind": "daily"}, "0 8 * * mon-fri", "Europe/Paris")
    _, listed, _ = holdfast("schedules", "list")
    assert [one["name"] for one in listed["schedules"]] == ["holdfast.retention", "morning"]
    assert holdfast("schedules", "pause", "morning", "--tenant", "acme", "--by", "ana")[1]["paused_by"] == "ana"
    assert holdfast("schedules", "pause", "morning", "--tenant", "acme")[0] == 4
    assert holdfast("schedules", "resume", "morning", "--tenant", "acme")[1]["paused_at"] is None
    job_id = holdfast("schedules", "run", "morning", "--tenant", "acme")[1]["job_id"]
    assert holdfast("jobs", "show", job_id)[1]["job"]["tenant"] == "acme"
    assert holdfast("schedules", "remove", "morning", "--tenant", "acme")[0] == 0
    assert holdfast("schedules", "remove", "morning", "--tenant", "acme")[0] == 3
    assert holdfast("schedules", "run", "holdfast.retention")[1] == {"job_id": None}
    assert holdfast("schedules", "remove", "holdfast.retention")[0] == 4


@pytest.mark.parametrize(
    "wrong",
    [
        ("report", "-a", "kind=x"),
        ("report", "-a", "kind=x", "--cron", "0 8 * * *", "--seconds", "5"),
        ("report", "-a", "kind=x", "--cron", "nonsense"),
        ("report", "-a", "kind=x", "--seconds", "0.1"),
        ("report", "-a", "kind=x", "--seconds", "60", "--tz", "Mars"),
        ("report", "--seconds", "60"),
        ("report", "-a", "kind=x", "-a", "n=many", "--seconds", "60"),
    ],
)
def test_a_wrong_schedule_is_refused(holdfast: Command, wrong: tuple[str, ...]) -> None:
    """Exit code 2, a reason, and nothing set."""
    code, _, error = holdfast("schedules", "set", "x", *wrong)
    assert code == 2 and error
    assert len(holdfast("schedules", "list")[1]["schedules"]) == 1


def test_the_jobs_of_a_batch(holdfast: Command, database_url: str) -> None:
    """`jobs list --batch` lists them and says how far they are; an unknown one is exit code 3."""
    from holdfast import Holdfast

    hf = Holdfast(database_url)

    @hf.task
    async def report(kind: str) -> None: ...

    batch = hf.batch_sync([report.job("a"), report.job("b")])
    hf.close()
    _, shown, _ = holdfast("jobs", "list", "--batch", batch.id)
    assert (len(shown["jobs"]), shown["batch"]["counts"]["queued"], shown["batch"]["progress"]) == (2, 2, 0.0)
    assert {job["batch"] for job in shown["jobs"]} == {batch.id}
    assert holdfast("jobs", "list", "--batch", "none")[0] == 3
