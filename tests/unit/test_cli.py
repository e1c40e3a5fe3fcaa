"""The command line, called in this process: exit codes, errors in one sentence, answers in JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.cli.apps import find_app_name
from holdfast.cli.call import Call

APP = """
from holdfast import Holdfast

hf = Holdfast()

@hf.task
async def add(a: int, b: int = 0) -> int:
    return a + b

@hf.task(queue="mail")
async def send(to: str) -> None: ...
"""


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


Holdfast_ = Callable[..., Answer]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an interpreter that forgets what was imported from it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "sqlite:///holdfast.db")
    return folder


@pytest.fixture
def holdfast(here: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Holdfast_]:
    """Calls the command in `here`."""

    def call(*arguments: str) -> Answer:
        sys.modules.pop("tasks", None)
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    yield call
    sys.modules.pop("tasks", None)
    logging.getLogger("holdfast").handlers.clear()


@pytest.fixture
def app(here: Path, holdfast: Holdfast_) -> Path:
    """The same with an app and a migrated database."""
    (here / "tasks.py").write_text(APP, encoding="utf-8")
    assert holdfast("migrate").code == 0
    return here


# -- errors and exit codes -------------------------------------------------------------------------------------------


def test_the_help_lists_every_command(holdfast: Holdfast_) -> None:
    """`holdfast` alone explains itself."""
    answer = holdfast()
    assert answer.code == 0
    for command in ("init", "dev", "worker", "reaper", "migrate", "doctor", "enqueue", "jobs", "completion"):
        assert f"\n  {command} " in answer.out


def test_version(holdfast: Holdfast_) -> None:
    """The version is one line."""
    assert holdfast("--version") == Answer(0, "holdfast 0.1.0\n", "")


@pytest.mark.parametrize("arguments", [("sing",), ("worker", "--loud"), ("jobs", "list", "--limit", "0"), ("jobs", "cancel")])
def test_wrong_usage_exits_with_2(holdfast: Holdfast_, arguments: tuple[str, ...]) -> None:
    """A call that cannot be understood says in one line where to read on."""
    answer = holdfast(*arguments)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "--help`" in answer.err


def test_wrong_usage_is_json_where_json_was_asked_for(holdfast: Holdfast_) -> None:
    """Also an error in the options themselves keeps to the asked format."""
    answer = holdfast("worker", "--loud", "--json")
    assert (answer.code, answer.error["code"]) == (2, "usage")


def test_no_app_exits_with_2(holdfast: Holdfast_) -> None:
    """Without an app the message says how to name or make one."""
    answer = holdfast("enqueue", "add")
    assert answer.code == 2
    assert "--app module:hf" in answer.err and "holdfast init" in answer.err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nonexistent_library", "No module named 'nonexistent_library' (tasks.py, line 1)"),
        ("x = 1\ny = = 2", "SyntaxError: invalid syntax (tasks.py, line 2)"),
        ("raise SystemExit(3)", "SystemExit: 3 (tasks.py, line 1)"),
        ("from holdfast import Holdfast\nhf = Holdfast(lease=-1)", "lease is -1"),
        ("from holdfast import Holdfast\njobs = Holdfast()", "did you mean tasks:jobs?"),
        ("hf = 3", "hf = Holdfast()"),
    ],
)
def test_an_app_that_cannot_be_imported_is_one_sentence(here: Path, holdfast: Holdfast_, text: str, reason: str) -> None:
    """A broken app shows its reason and no traceback."""
    (here / "tasks.py").write_text(text, encoding="utf-8")
    answer = holdfast("worker")
    assert answer.code == 2
    assert reason in answer.err
    assert answer.err.count("\n") == 1


def test_debug_shows_the_traceback(here: Path, holdfast: Holdfast_) -> None:
    """Whoever asks gets the whole story of a broken app."""
    (here / "tasks.py").write_text("1 / 0", encoding="utf-8")
    assert "Traceback" in holdfast("worker", "--debug").err


def test_a_module_that_is_not_there_is_named(holdfast: Holdfast_) -> None:
    """A misspelt --app is told apart from a broken one."""
    assert "There is no module called taks here" in holdfast("--app", "taks:hf", "worker").err


def test_an_app_that_names_its_database_in_code_refuses_another(here: Path, holdfast: Holdfast_) -> None:
    """--database never silently works on another database than the app's isolated runs would."""
    (here / "tasks.py").write_text("from holdfast import Holdfast\nhf = Holdfast('sqlite:///a.db')", encoding="utf-8")
    answer = holdfast("--database", "sqlite:///b.db", "migrate")
    assert answer.code == 2
    assert "names its database in code" in answer.err


def test_the_app_is_found_by_option_environment_file_and_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The strongest source wins."""
    found = [find_app_name(Call())]
    (here / "tasks.py").touch()
    found.append(find_app_name(Call()))
    (here / "pyproject.toml").write_text("[tool.holdfast]\napp = 'project:hf'", encoding="utf-8")
    found.append(find_app_name(Call()))
    (here / "holdfast.toml").write_text("app = 'file:hf'", encoding="utf-8")
    found.append(find_app_name(Call()))
    monkeypatch.setenv("HOLDFAST_APP", "environment:hf")
    found.append(find_app_name(Call()))
    found.append(find_app_name(Call(app="option:hf")))
    assert found == [None, "tasks:hf", "project:hf", "file:hf", "environment:hf", "option:hf"]


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "postgresql://ann:tops3cret@127.0.0.1:9/jobs"])
def test_a_database_that_is_not_there_exits_with_5(holdfast: Holdfast_, url: str) -> None:
    """Storage that cannot be reached is told in one sentence, without the password."""
    answer = holdfast("--database", url, "jobs", "list", "--json")
    assert answer.code == 5
    assert answer.error["code"] == "storage_unavailable"
    assert "tops3cret" not in answer.err


def test_a_database_that_is_not_migrated_exits_with_5(holdfast: Holdfast_) -> None:
    """The message names the command that helps."""
    answer = holdfast("jobs", "list")
    assert answer.code == 5
    assert "holdfast migrate" in answer.err


def test_a_job_that_is_not_there_exits_with_3(app: Path, holdfast: Holdfast_) -> None:
    """All commands on a job agree on what a missing one means."""
    for command in ("show", "logs", "cancel", "retry"):
        assert holdfast("jobs", command, "00000000-0000-7000-8000-000000000000").code == 3


def test_an_act_that_the_state_forbids_exits_with_4(app: Path, holdfast: Holdfast_) -> None:
    """Retrying a queued job is refused with its reason."""
    job_id = holdfast("enqueue", "add", "-a", "a=1").out.strip()
    answer = holdfast("jobs", "retry", job_id)
    assert answer.code == 4
    assert "is queued and will run by itself" in answer.err


def test_a_wait_that_is_too_short_exits_with_124(app: Path, holdfast: Holdfast_) -> None:
    """The job stays queued; only the waiting ends."""
    answer = holdfast("enqueue", "add", "-a", "a=1", "--wait", "--timeout", "0.01", "--json")
    assert answer.code == 124
    assert answer.error["code"] == "result_timeout"
    assert answer.json["state"] == "queued"


# -- commands --------------------------------------------------------------------------------------------------------


def test_init_writes_what_works(here: Path, holdfast: Holdfast_) -> None:
    """The files of init are an app whose tasks can be enqueued at once."""
    answer = holdfast("init")
    assert answer.code == 0
    assert answer.out.count("\n  holdfast ") == 3
    assert holdfast("migrate").code == 0
    assert holdfast("enqueue", "greet", "-a", "name=Ada", "--json").json["args"] == {"name": "Ada"}


def test_init_never_overwrites(here: Path, holdfast: Holdfast_) -> None:
    """A file that is there is named, kept, and nothing else is written."""
    (here / "holdfast.toml").write_text("lease = 5", encoding="utf-8")
    answer = holdfast("init")
    assert answer.code == 4
    assert "holdfast.toml is already there" in answer.err
    assert (here / "holdfast.toml").read_text(encoding="utf-8") == "lease = 5"
    assert not (here / "tasks.py").exists()


def test_migrate_check_tells_whether_something_is_pending(holdfast: Holdfast_) -> None:
    """1 before, 0 after, and a second migration does nothing."""
    before = holdfast("migrate", "--check", "--json")
    first, second = holdfast("migrate", "--json"), holdfast("migrate")
    after = holdfast("migrate", "--check", "--json")
    assert (before.code, before.json) == (1, {"pending": True, "version": None})
    assert first.json["applied"]
    assert second.out == "up to date\n"
    assert (after.code, after.json["pending"]) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("add", "--args", "{"), 2, "usage"),
        (("add", "--args", "[1]"), 2, "usage"),
        (("add", "-a", "a"), 2, "usage"),
        (("add",), 2, "args_invalid"),
        (("add", "-a", "a=one"), 2, "args_invalid"),
        (("add", "-a", "a=1", "--max-attempts", "0"), 2, "option_invalid"),
        (("add", "-a", "a=1", "--timeout", "3"), 2, "usage"),
        (("subtract",), 3, "task_unknown"),
    ],
)
def test_enqueue_refuses_what_the_library_refuses(
    app: Path, holdfast: Holdfast_, arguments: tuple[str, ...], code: int, error: str
) -> None:
    """A job that could not run is not accepted, and nothing is written."""
    answer = holdfast("enqueue", *arguments, "--json")
    assert (answer.code, answer.error["code"]) == (code, error)
    assert holdfast("jobs", "list", "--json").json["jobs"] == []


def test_enqueue_passes_every_option_on(app: Path, holdfast: Holdfast_) -> None:
    """What was asked for is what the job has."""
    asked = "--tenant t --queue q --priority 3 --delay 60 --unique u --order o --tag x --tag y --max-attempts 9"
    job = holdfast("enqueue", "add", "--args", '{"a": 1}', "-a", "b=2", *asked.split(), "--json").json
    expected = {
        "args": {"a": 1, "b": 2}, "tenant": "t", "queue": "q", "priority": 3, "status": "scheduled", "unique_key": "u",
        "order_key": "o", "tags": ["x", "y"], "max_attempts": 9, "created": True,
    }  # fmt: skip
    assert {name: job[name] for name in expected} == expected


def test_text_stays_text_where_the_task_wants_text(app: Path, holdfast: Holdfast_) -> None:
    """A post code is no number."""
    assert holdfast("enqueue", "send", "-a", "to=01234", "--json").json["args"] == {"to": "01234"}


def test_a_second_job_with_the_same_key_answers_with_the_first(app: Path, holdfast: Holdfast_) -> None:
    """`--unique` is safe to repeat."""
    first = holdfast("enqueue", "add", "-a", "a=1", "--unique", "k").out
    assert holdfast("enqueue", "add", "-a", "a=1", "--unique", "k").out == first


def test_jobs_are_listed_by_filter_and_page_by_page(app: Path, holdfast: Holdfast_) -> None:
    """The cursor of one page leads to the next, until there is none."""
    ids = [holdfast("enqueue", "add", "-a", f"a={n}").out.strip() for n in range(3)]
    holdfast("enqueue", "send", "-a", "to=x")
    first = holdfast("jobs", "list", "--task", "add", "--limit", "2", "--json").json
    second = holdfast("jobs", "list", "--task", "add", "--limit", "2", "--cursor", first["next_cursor"], "--json").json
    assert [job["id"] for job in first["jobs"] + second["jobs"]] == ids[::-1]
    assert second["next_cursor"] is None
    assert len(holdfast("jobs", "list", "--queue", "mail", "--json").json["jobs"]) == 1


def test_a_list_for_people_has_whole_ids_and_no_colour_in_a_pipe(app: Path, holdfast: Holdfast_) -> None:
    """What is copied out of a list can be pasted into the next command."""
    job_id = holdfast("enqueue", "add", "-a", "a=1").out.strip()
    answer = holdfast("jobs", "list")
    assert job_id in answer.out
    assert "\x1b" not in answer.out


def test_each_of_several_jobs_is_tried(app: Path, holdfast: Holdfast_) -> None:
    """One refusal does not keep the others from being cancelled, and decides the exit code."""
    ids = [holdfast("enqueue", "add", "-a", f"a={n}").out.strip() for n in range(2)]
    holdfast("jobs", "cancel", ids[0])
    answer = holdfast("jobs", "cancel", *ids, "--json")
    assert answer.code == 4
    assert [job["id"] for job in answer.json["jobs"]] == [ids[1]]
    assert [(error["id"], error["code"]) for error in answer.json["errors"]] == [(ids[0], "already_cancelled")]


def test_show_and_logs_tell_a_failed_jobs_story(app: Path, holdfast: Holdfast_) -> None:
    """Runs, events and the log with its traceback, for programs and for people."""

    async def fail_once() -> str:
        hf = Holdfast("sqlite:///holdfast.db")

        @hf.task(max_attempts=2, backoff=(0,))
        async def explode() -> None:
            raise ValueError("it was the wind")

        job = await explode.enqueue()
        await hf.run_worker(exit_when_idle=0.0)
        await hf.aclose()
        return job.id

    job_id = asyncio.run(fail_once())
    story = holdfast("jobs", "show", job_id, "--json").json
    assert story["job"]["state"] == "failed"
    assert [(run["run_no"], run["outcome"]) for run in story["runs"]] == [(2, "failed"), (1, "failed")]
    assert story["events"]
    assert "it was the wind" in story["logs"][-1]["message"]
    assert holdfast("jobs", "logs", job_id, "--run", "1", "--json").json["run_no"] == 1
    assert "Traceback" in holdfast("jobs", "logs", job_id).out
    assert "it was the wind" in holdfast("jobs", "show", job_id).out
    missing = holdfast("jobs", "logs", job_id, "--run", "7", "--json")
    assert (missing.code, missing.error["code"]) == (3, "run_not_found")


def test_one_pass_of_the_reaper_counts_what_it_did(app: Path, holdfast: Holdfast_) -> None:
    """A quiet database needs nothing."""
    nothing = ("requeued", "failed", "cancelled", "orphaned_jobs_found", "machines_started", "pruned")
    assert holdfast("reaper", "--once", "--json").json == dict.fromkeys(nothing, 0)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(holdfast: Holdfast_, shell: str) -> None:
    """The script asks this program for what may come next."""
    answer = holdfast("completion", shell)
    assert answer.code == 0
    assert "_HOLDFAST_COMPLETE" in answer.out


def test_a_worker_starts_without_what_only_people_need(app: Path) -> None:
    """No other command, no rich, no foreign driver and no part that it does not use is imported on the way to the first
    claim."""
    heavy = {
        *("rich", "asyncpg", "httpx", "fastapi", "jinja2", "pydantic", "cryptography", "zoneinfo"),
        *("holdfast.cli.jobs", "holdfast.cli.doctor", "holdfast.cli.dev", "holdfast.doctor", "holdfast.web"),
        *("holdfast.outbox", "holdfast.webhooks.delivery", "holdfast.webhooks.endpoints", "holdfast.webhooks.inbound"),
        *("holdfast.people.keys", "holdfast.people.members", "holdfast.people.projects", "holdfast.tenant_data"),
        *("holdfast.processes.orchestrator", "holdfast.machines.reconcile", "holdfast.pipeline", "holdfast.extraction"),
    }
    probe = (
        "import sys; from holdfast.cli import main; code = main(['worker', '--exit-when-idle', '0']); "
        f"print(code, sorted({heavy} & set(sys.modules)))"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout == "0 []\n", done.stderr
