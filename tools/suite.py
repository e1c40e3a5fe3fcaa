"""The whole suite: first what may run side by side, then the browser's tests alone.

A few tests that fail beside others are run once more, alone. Those that pass then are named at the end as unsteady, which is a
fault to be mended: such a test waits too short or measures the machine. Anything that fails twice fails the suite.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNSTEADY_MAX = 5
PARTS = {
    "tests": ["--numprocesses", "2", "--dist", "loadfile", "--ignore", "tests/browser"],
    "tests in the browser": ["tests/browser"],
}
TESTS_FAILED = 1


def pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", "--quiet", *arguments], cwd=ROOT).returncode


def failed_last() -> list[str]:
    """The names that the run before has left in pytest's cache, which only a run in one go writes whole."""
    cache = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(cache.read_text(encoding="utf-8"))) if cache.exists() else []


def main(extra: list[str]) -> int:
    unsteady: list[str] = []
    for name, arguments in PARTS.items():
        code = pytest("--cache-clear", *arguments, *extra)
        failed = failed_last()
        if code == TESTS_FAILED and 0 < len(failed) <= UNSTEADY_MAX:
            print(f"\n{len(failed)} of the {name} failed; once more, alone:", flush=True)
            code = pytest("--numprocesses", "0", *failed, *extra)
            unsteady += failed
        if code:
            return code
    if unsteady:
        print("\nUNSTEADY: failed beside others and passed alone; mend them:\n  " + "\n  ".join(unsteady))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
