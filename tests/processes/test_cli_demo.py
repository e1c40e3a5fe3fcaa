"""What `make demo` runs."""

from __future__ import annotations

import subprocess
import sys

from tests.support.processes import ROOT


def test_the_demo_kills_a_worker_and_loses_nothing() -> None:
    """The first thing a newcomer sees ends by itself, and well."""
    done = subprocess.run([sys.executable, "examples/demo.py"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "killed (SIGKILL)" in done.stdout
    assert "7 completed, 1 failed on purpose, 0 lost" in done.stdout
    assert done.stderr == ""


def test_the_demo_extracts_two_bundled_projects() -> None:
    """Without a network, with what pip installs: it tells what was found, and of each missing tool how to get it."""
    done = subprocess.run([sys.executable, "examples/extraction.py"], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Vulnerabilities  2 (1 critical, 1 high)" in done.stdout
    assert "index.js:2  Secret Keyword" in done.stdout
    assert "known to be exploited" in done.stdout
    assert done.stdout.count("✓ Extraction complete (") == 2
    assert done.stderr == ""
