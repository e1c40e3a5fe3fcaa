"""Users' type checkers see through tasks: arguments, options and results."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def mypy_error_lines(path: Path) -> set[int]:
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(rf"{path.name}:(\d+): error", done.stdout)}


def pyright_error_lines(path: Path) -> set[int]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {d["range"]["start"]["line"] + 1 for d in found if d["severity"] == "error" and Path(d["file"]).name == path.name}


def marked_lines(path: Path) -> set[int]:
    return {number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# refused")}


@pytest.mark.parametrize("error_lines", [mypy_error_lines, pyright_error_lines])
@pytest.mark.parametrize("name", ["accepted.py", "refused.py"])
def test_type_checkers_refuse_exactly_the_marked_lines(error_lines: Callable[[Path], set[int]], name: str) -> None:
    """Right uses infer the task's own types, wrong ones are errors at the line that makes them."""
    path = ROOT / "tests" / "typing" / name
    assert marked_lines(path) == error_lines(path)
