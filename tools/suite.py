"""The whole suite: first what may run side by side, then the browser's tests alone.

A few tests that fail beside others are run again, alone, up to three times, each time only those that failed the last time.
Those that pass then are named at the end as unsteady, with how often they failed, which is a fault to be mended: such a test
waits too short or measures the machine. Anything that fails every time fails the suite.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNSTEADY_MAX = 5
TRIES_ALONE = 3
PARTS = {
    # Four on two cores: most tests wait for something. In the order of tests/conftest.py, long files first: else one of
    # them is still at work when all others are done.
    "tests": ["--numprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--ignore", "tests/browser"],
    "tests in the browser": ["tests/browser"],
}
TESTS_FAILED = 1


def pytest(*arguments: str) -> int:
    # The tests start more than a thousand programs: none of them should have to compile Holdfast again.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-m", "pytest", "--quiet", *arguments], cwd=ROOT, env=env).returncode


def failed_last() -> list[str]:
    """The names that the run before has left in pytest's cache, which only a run in one go writes whole."""
    cache = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(cache.read_text(encoding="utf-8"))) if cache.exists() else []


def main(extra: list[str], pytest: Callable[..., int] = pytest, failed_last: Callable[[], list[str]] = failed_last) -> int:
    failures: Counter[str] = Counter()
    for name, arguments in PARTS.items():
        code = pytest("--cache-clear", *arguments, *extra)
        failed = failed_last() if code == TESTS_FAILED else []
        failures.update(failed)
        if len(failed) > UNSTEADY_MAX:
            return code
        for _ in range(TRIES_ALONE):
            if code != TESTS_FAILED or not failed:
                break
            print(f"\n{len(failed)} of the {name} failed; again, alone:", flush=True)
            code = pytest("--numprocesses", "0", *failed, *extra)
            failed = failed_last() if code == TESTS_FAILED else []
            failures.update(failed)
        if code:
            if failed:
                print("\nFAILED, also alone:" + _told(failures, failed))
            return code
    if failures:
        print("\nUNSTEADY: failed beside others and passed alone; mend them:" + _told(failures, list(failures)))
    return 0


def _told(failures: Counter[str], names: list[str]) -> str:
    return "".join(f"\n  {name} (failed {failures[name]} times)" for name in sorted(names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
