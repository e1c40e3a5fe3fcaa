"""What the README shows is run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.waiting import until_sync

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def commands(starting_with: str) -> list[list[str]]:
    lines = [line[2:] for kind, text in BLOCKS if kind == "console" for line in text.splitlines() if line.startswith("$ ")]
    return [shlex.split(line, comments=True) for line in lines if line.startswith(starting_with)]


def holdfast(*arguments: str, folder: Path, **how: Any) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen([sys.executable, "-m", "holdfast", *arguments], cwd=folder, env=env, text=True, **how)


def test_the_first_example_runs_as_the_first_commands_say(tmp_path: Path) -> None:
    """A newcomer who copies tasks.py and types the two commands sees the receipt."""
    (tmp_path / "tasks.py").write_text(BLOCKS[0][1], encoding="utf-8")
    dev, enqueue = commands("holdfast")[:2]
    assert (dev[1], enqueue[1]) == ("dev", "enqueue")
    printed = tmp_path / "printed"
    with printed.open("wb") as sink:
        running = holdfast(*dev[1:], folder=tmp_path, stdout=sink, stderr=sink, start_new_session=True)
    try:
        until_sync(lambda: "Serving http" in printed.read_text(), timeout=60)  # by then the database is migrated
        asked = holdfast(*enqueue[1:], "--timeout", "60", "--json", folder=tmp_path, stdout=subprocess.PIPE)
        assert json.loads(asked.communicate(timeout=100)[0])["result"] == "receipt 7 sent to ana@example.org"
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(60)


def test_the_longer_example_runs(tmp_path: Path) -> None:
    """The lines of *A little more* work on the task of the first example, in an order in which they can."""
    first = BLOCKS[0][1].replace("sqlite:///jobs.db", f"sqlite:///{tmp_path}/jobs.db")
    lines = next(text for kind, text in BLOCKS if kind == "python" and "enqueue_many" in text).splitlines()
    enqueue, wait, *others, work = (line.replace("delay=10", "delay=0") for line in lines)
    body = "".join(f"    {line}\n" for line in ("await hf.migrate()", enqueue, *others, work, wait, "await hf.aclose()"))
    names: dict[str, Any] = {}
    exec(compile(f"{first}\nasync def main():\n{body}", "README.md", "exec"), names)
    asyncio.run(names["main"]())


def test_every_link_of_the_readme_leads_somewhere() -> None:
    """No link points at a file that is not there."""
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
