"""What `make demo` runs."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT


def test_the_demo_kills_a_worker_and_loses_nothing() -> None:
    """The first thing a newcomer sees ends by itself, and well."""
    done = subprocess.run([sys.executable, "examples/demo.py"], cwd=ROOT, capture_output=True, text=True, timeout=40)
    assert done.returncode == 0, done.stderr
    assert "killed (SIGKILL)" in done.stdout
    assert "7 completed, 1 failed on purpose, 0 lost" in done.stdout
    assert done.stderr == ""
