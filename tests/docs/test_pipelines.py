"""What docs/pipelines.md shows is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    """A reader who copies it sees the same lines."""
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    program, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "reading.py").write_text(program, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ran = subprocess.run(
        [sys.executable, "reading.py"], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.returncode) == (printed, 0), ran.stderr
