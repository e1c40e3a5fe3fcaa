"""The whole suite: the tests side by side, then those in the browser. A test that fails once fails the suite.

Up to five failed tests run once more, alone, only to report which of them are unsteady. A hang ends in one of three ways:
pytest-timeout fails the test; where the interpreter lock is stuck, `tests/support/watchdog.py` ends the process, and
pytest-xdist names the test and starts another process; `--limit` ends the suite. Processes that are left behind are ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
ALONE_MAX = 5
LIMIT_SECONDS = 1800
SUMMARY_SECONDS = 20
END_SECONDS = 5
MARK = "HOLDFAST_TEST_RUN"
PARTS = {
    # Four on two cores: most tests wait for something. In the order of tests/conftest.py, long files first: else one of
    # them is still at work when all others are done.
    "tests": ["--numprocesses", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--ignore", "tests/browser"],
    # In processes of their own: Playwright's event loop and those of other tests do not go together.
    "tests in the browser": ["--numprocesses", "2", "--dist", "loadfile", "tests/browser"],
}
NOT_FAST = (
    "tests/examples",
    "tests/packaging",
    "tests/processes",
    "tests/simulation",
    "tests/cases/test_isolated.py",
    "tests/security/test_own_repository.py",
    "tests/unit/extraction/test_hostile_manifests.py",
    "tests/unit/test_redact_time.py",
    "tests/unit/test_suite.py",
    "tests/unit/test_suite_hangs.py",
    "tests/unit/test_typing.py",
    "tests/web/test_extraction_routes.py",
    "tests/web/test_fuzz.py",
    "tests/web/test_matrix.py",
)
FAST_PARTS = {
    "tests": [*PARTS["tests"], "--store", "sqlite", *(word for path in NOT_FAST for word in ("--ignore", path))],
}
MEMORY = Path("/dev/shm")
ROOM_BYTES = 6 * 2**30
TESTS_FAILED = 1
NO_TESTS = 5
LIMIT_REACHED = 124


class Suite:
    def __init__(self, root: Path, limit: float) -> None:
        self._root = root
        self._limit = limit
        self._ends_at = time.monotonic() + limit
        self._mark = f"{os.getpid()}-{time.time_ns()}"

    def run(self, parts: Mapping[str, list[str]], extra: list[str]) -> int:
        verdicts: dict[str, str] = {}
        chosen = False
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=MEMORY if _has_room(MEMORY) else None))
        self._folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        try:
            for name, arguments in parts.items():
                code = self._pytest("--cache-clear", *arguments, *extra)
                if code == TESTS_FAILED:
                    verdicts |= self._again(name, extra)
                elif code not in (0, NO_TESTS):
                    return code
                chosen |= code != NO_TESTS
        finally:
            end_marked(self._mark)
            shutil.rmtree(self._folder, ignore_errors=True)
        if verdicts:
            print("\nFAILED:" + "".join(f"\n  {test} ({verdict})" for test, verdict in verdicts.items()))
        return TESTS_FAILED if verdicts else 0 if chosen else NO_TESTS

    def _again(self, name: str, extra: list[str]) -> dict[str, str]:
        """Run the failed tests of a part alone. It changes what is reported, never the exit code."""
        failed = self._failed_last() or [f"some of the {name}"]
        if len(failed) > ALONE_MAX or not self._failed_last():
            return dict.fromkeys(failed, "not run again")
        print(f"\n{len(failed)} of the {name} failed. Alone:", flush=True)
        code = self._pytest("--numprocesses", "1", *failed, *extra)
        if code not in (0, TESTS_FAILED):
            return dict.fromkeys(failed, "not run again to the end")
        still = self._failed_last() if code else []
        return {test: "fails alone, too" if test in still else "unsteady: passes alone" for test in failed}

    def _pytest(self, *arguments: str) -> int:
        # The tests start more than a thousand programs: none of them should have to compile Holdfast again.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-m", "pytest", "--quiet", *arguments]
        process = subprocess.Popen(command, cwd=self._root, env={**env, MARK: self._mark, "TMPDIR": str(self._folder)})
        try:
            return process.wait(max(0.0, self._ends_at - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._break_off(process)
            return LIMIT_REACHED
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def _break_off(self, process: subprocess.Popen[bytes]) -> None:
        """Each process prints its stacks and ends; then pytest names their tests and sums up."""
        print(f"\nThe suite reached its limit of {self._limit:.0f} s. What runs now:", flush=True)
        for worker in psutil.Process(process.pid).children():
            worker.send_signal(signal.SIGABRT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(SUMMARY_SECONDS)
        except subprocess.TimeoutExpired:
            pass

    def _failed_last(self) -> list[str]:
        """The names that the run before has left in pytest's cache, which only a run in one go writes whole."""
        cache = self._root / ".pytest_cache" / "v" / "cache" / "lastfailed"
        return sorted(json.loads(cache.read_text(encoding="utf-8"))) if cache.exists() else []


def end_marked(mark: str) -> None:
    """End every process that a run with this mark started and left behind."""
    left = _marked(mark)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(left, END_SECONDS)
        left = _marked(mark)


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


def _has_room(memory: Path) -> bool:
    """Files in memory cost no waiting for a disk."""
    return memory.is_dir() and shutil.disk_usage(memory).free > ROOM_BYTES


def main(arguments: list[str], root: Path = ROOT, parts: Mapping[str, list[str]] = PARTS) -> int:
    parser = argparse.ArgumentParser(description="Run all tests; other arguments are passed on to pytest.", allow_abbrev=False)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, metavar="SECONDS", help="end the suite after this time")
    parser.add_argument("--fast", action="store_true", help="SQLite only, without browsers, programs and the slowest files")
    options, extra = parser.parse_known_args(arguments)
    return Suite(root, options.limit).run(FAST_PARTS if options.fast else parts, extra)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what it started is ended
    sys.exit(main(sys.argv[1:]))
