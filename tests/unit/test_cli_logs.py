"""Logs and events on the command line, on both databases; and what a terminal is never given."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.cli import logs as cli_logs
from holdfast.cli import main
from holdfast.cli.log_text import log_text
from holdfast.cli.output import printable
from holdfast.job import LogLine
from holdfast.store.protocol import Completion, Departure, Leaving, LogBatch

GUIDE = Path(__file__).parents[2] / "docs" / "logs.md"
HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J back\rspace\x08 \u202egnp.exe"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def holdfast(database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Calls the command on a fresh database, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        code = main(["--database", database_url, *arguments])
        printed = capsys.readouterr()
        return Answer(code, printed.out, printed.err)

    return call


def job_with(database_url: str, *runs: list[dict[str, Any]], end: str | None = "complete") -> str:
    """A job whose runs have said this; all but the last one have failed. Its id."""

    async def make() -> str:
        hf = Holdfast(database_url)

        @hf.task(max_attempts=9, backoff=(0,))
        async def talk() -> None: ...

        job = await talk.options(tenant="acme").enqueue()
        for place, said in enumerate(runs, 1):
            claim = await hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["talk"], limit=1)
            run_id = claim.jobs[0].run_id
            lines = [LogLine(run_id=run_id, no=no, **{"level": "info", **line}) for no, line in enumerate(said, 1)]
            for start in range(0, len(lines), 1000):
                await hf.store.log_append_if_leased([LogBatch(job.id, run_id, lines[start : start + 1000])])
            if place < len(runs):
                await hf.store.job_leave_if_leased([Departure(id=job.id, run_id=run_id, how=Leaving.RETRY, error_code="x")])
            elif end == "complete":
                await hf.store.job_complete_if_leased([Completion(job.id, run_id, None)])
            elif end == "fail":
                left = Departure(id=job.id, run_id=run_id, how=Leaving.FAIL, error_code="x", error_message="no \x1b[2Jdisk")
                await hf.store.job_leave_if_leased([left])
        await hf.aclose()
        return job.id

    return asyncio.run(make())


def said(*messages: str, **parts: Any) -> list[dict[str, Any]]:
    return [{"message": message, **parts} for message in messages]


def messages(answer: Answer) -> list[str]:
    assert answer.code == 0, answer.err
    return [json.loads(line)["message"] for line in answer.out.splitlines()]


def test_lines_are_plain_where_nobody_looks_at_a_terminal(holdfast: Command, database_url: str) -> None:
    """Time, level, step, message, how long it took, and what else was said, one line each."""
    line = {"message": "packed", "level": "warning", "step": "pack", "duration_ms": 12.0, "metadata": {"files": 3}}
    answer = holdfast("jobs", "logs", job_with(database_url, [line, {"message": "two\nlines"}]))
    first, second, third = (text[9:] for text in answer.out.splitlines())
    assert (first, second, third) == ('warning [pack] packed (12 ms) {"files":3}', "info    two", "lines")


def test_colours_go_by_level() -> None:
    """On a terminal a dot tells the level, and what is beside the message is dimmed."""
    line = LogLine(run_id="r", no=1, level="error", message="broken", metadata={"n": 1}, created_at=datetime.now(UTC))
    text = log_text([line], colour=True)
    assert "\x1b[31m●\x1b[0m \x1b[31mbroken\x1b[0m\x1b[2m" in text
    assert "error" not in text


def test_filters_choose_lines(holdfast: Command, database_url: str) -> None:
    """By level, step, text and number, whole or from the end, and with a word where nothing is left."""
    lines = [*said("Clone", "slow", step="clone"), *said("bad", level="error", step="scan"), *said("odd", level="warning")]
    job_id = job_with(database_url, lines)

    def chosen(*options: str) -> list[str]:
        return messages(holdfast("jobs", "logs", job_id, "--format", "ndjson", *options))

    assert chosen() == ["Clone", "slow", "bad", "odd"]
    assert chosen("--tail", "2") == ["bad", "odd"]
    assert chosen("--level", "warning,error") == ["bad", "odd"]
    assert chosen("--step", "clone", "--search", "CLO") == ["Clone"]
    assert chosen("--follow", "--level", "error") == ["bad"]
    assert chosen("-f", "--tail", "1", "--step", "clone") == ["slow"]
    assert "No line matches" in holdfast("jobs", "logs", job_id, "--search", "%").err
    assert holdfast("jobs", "logs", job_id, "--level", "loud").code == 2
    assert holdfast("jobs", "logs", job_id, "--all", "--run", "1").code == 2


def test_every_attempt_can_be_read(holdfast: Command, database_url: str) -> None:
    """One run by its number, or all of them in order, each under its heading."""
    job_id = job_with(database_url, said("first"), said("second"), said("third"))
    assert messages(holdfast("jobs", "logs", job_id, "--format", "ndjson")) == ["third"]
    assert messages(holdfast("jobs", "logs", job_id, "--run", "2", "--format", "ndjson")) == ["second"]
    every = ["first", "second", "third"]
    assert [message for message in messages(holdfast("jobs", "logs", job_id, "--all", "--json")) if message in every] == every
    assert [
        message for message in messages(holdfast("jobs", "logs", job_id, "--all", "-f", "--json")) if message in every
    ] == every
    text = holdfast("jobs", "logs", job_id, "--all").out
    assert [line for line in text.splitlines() if line.startswith("──")] == [f"── run {no} ──" for no in (1, 2, 3)]


def test_json_is_one_object_and_ndjson_one_per_line(holdfast: Command, database_url: str) -> None:
    """Both name the run; a followed log is NDJSON, because nobody knows its end."""
    job_id = job_with(database_url, said("one", "two"))
    whole = json.loads(holdfast("jobs", "logs", job_id, "--json").out)
    assert (whole["run_no"], [line["message"] for line in whole["lines"]]) == (1, ["one", "two"])
    first = json.loads(holdfast("jobs", "logs", job_id, "-f", "--json").out.splitlines()[0])
    assert (first["run_no"], first["run_id"], first["no"]) == (1, whole["run_id"], 1)


def test_a_long_log_is_exported_page_by_page(holdfast: Command, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a page of it is ever in memory, in any form; `jobs show` reads what it shows."""
    asked: list[int] = []
    read = Holdfast.logs

    async def counting(self: Holdfast, run_id: str, **where: Any) -> list[LogLine]:
        asked.append(where["limit"])
        return await read(self, run_id, **where)

    monkeypatch.setattr(Holdfast, "logs", counting)
    monkeypatch.setattr(cli_logs, "PAGE_LINES", 100)
    numbers = [str(no) for no in range(2050)]
    job_id = job_with(database_url, said(*numbers))
    assert messages(holdfast("jobs", "logs", job_id, "--format", "ndjson")) == numbers
    assert len(holdfast("jobs", "logs", job_id).out.splitlines()) == 2050
    assert len(json.loads(holdfast("jobs", "logs", job_id, "--json").out)["lines"]) == 2050
    assert set(asked) == {100}
    asked.clear()
    assert "2049" in holdfast("jobs", "show", job_id).out
    assert asked == [20]


@pytest.mark.parametrize("end", ["complete", "fail"])
def test_following_a_job_that_has_ended_says_how(holdfast: Command, database_url: str, end: str) -> None:
    """The lines on standard output, the end on standard error, and the exit code is that of a reading."""
    answer = holdfast("jobs", "logs", job_with(database_url, said("one"), end=end), "-f")
    assert (answer.code, answer.out.count("one")) == (0, 1)
    assert answer.err == ("The job is completed.\n" if end == "complete" else "The job is failed: no ␛[2Jdisk\n")


@pytest.mark.case("D38")
def test_a_terminal_is_never_given_what_it_would_obey(holdfast: Command, database_url: str) -> None:
    """Escape sequences, carriage returns and turned writing in a message are shown, not sent, in every form."""
    line = {"message": HOSTILE, "step": HOSTILE, "metadata": {"k": HOSTILE, "traceback": HOSTILE}}
    job_id = job_with(database_url, [line])
    commands = [("jobs", "logs", job_id, *rest) for rest in ((), ("--json",), ("--format", "ndjson"), ("-f",))]
    for command in (*commands, ("jobs", "show", job_id), ("jobs", "show", job_id, "--json")):
        answer = holdfast(*command)
        assert answer.code == 0
        assert not set(answer.out + answer.err) & set("\x1b\x07\x08\r\x9b\u202e"), command
    assert printable(HOSTILE) == "red ␛]0;title␇ \\u009b2J back␍space␈ \\u202egnp.exe"


def test_events_are_listed_by_tenant_and_by_job(holdfast: Command, database_url: str) -> None:
    """Newest first and page by page; of one job all, oldest first."""
    job_id = job_with(database_url, said("one"), said("two"), end=None)
    assert holdfast("jobs", "cancel", job_id).code == 0
    assert holdfast("tenants", "pause", "acme", "--by", "ana").code == 0
    first = json.loads(holdfast("events", "--tenant", "acme", "--limit", "1", "--json").out)
    assert first["events"][0]["actor"] == "ana"
    rest = json.loads(holdfast("events", "--tenant", "acme", "--before", str(first["next_before"]), "--json").out)
    of_job = json.loads(holdfast("events", "--job", job_id, "--json").out)
    assert of_job["events"] == rest["events"][::-1] and len(of_job["events"]) >= 2
    assert "ana" in holdfast("events").out
    assert "no such event" in holdfast("events", "--tenant", "nobody").err
    assert holdfast("events", "--tenant", "acme", "--job", job_id).code == 2


def test_the_guide_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its snippets run in their order, and every command answers as printed there (… stands for anything)."""
    monkeypatch.chdir(tmp_path)
    program: dict[str, Any] = {"__name__": "guide"}
    with asyncio.Runner() as runner:
        for language, text in re.findall(r"^```(python|console)\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S):
            if language == "python":
                runner.run(_awaited(compile(text, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), program))
                continue
            for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
                command, _, expected = part.replace(" ID", f" {program['job'].id}").partition("\n")
                words = shlex.split(command)
                if words[0] == "export":
                    monkeypatch.setenv(*words[1].split("=", 1))
                    continue
                assert main(words[1:]) == 0
                assert re.fullmatch(re.escape(expected).replace("…", ".*"), capsys.readouterr().out)
        runner.run(program["hf"].aclose())


async def _awaited(code: Any, program: dict[str, Any]) -> None:
    done = eval(code, program)
    if inspect.isawaitable(done):
        await done
