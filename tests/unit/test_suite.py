"""`make test` is honest: what fails once fails it, and no hang holds up the rest of the suite."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.support.processes import runs
from tools import suite

FAILS_ONCE = """
    from pathlib import Path

    def test_fails_once():
        seen = Path(__file__).with_name("seen")
        first = not seen.exists()
        seen.touch()
        assert not first
"""
HOLDS_THE_INTERPRETER = """
    import ctypes, subprocess, threading
    from pathlib import Path

    def test_holds_the_interpreter_for_ever():
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(__file__).with_name("child").write_text(str(child.pid))
        thread = threading.Thread(target=ctypes.PyDLL(None).pause, daemon=True)
        thread.start()
        thread.join()

    def test_after_it():
        Path(__file__).with_name("went on").touch()
"""
HOLDS_IT_AT_THE_VERY_END = """
    import ctypes, threading

    def test_holds_it():
        thread = threading.Thread(target=ctypes.PyDLL(None).pause, daemon=True)
        thread.start()
        thread.join()
"""
HANGS_IN_ITS_TEARDOWN = """
    import ctypes, threading
    import pytest

    @pytest.fixture
    def stuck():
        yield
        thread = threading.Thread(target=ctypes.PyDLL(None).pause, daemon=True)
        thread.start()
        thread.join()

    def test_fails_and_then_hangs(stuck):
        assert False
"""
WAITS = """
    import threading

    def test_waits_for_ever():
        threading.Event().wait()
"""


class Tiny:
    """A suite of a few files with the project's own settings, and shorter limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text(
            "from tests.support.scheduling import *\nfrom tests.support.watchdog import *\n", encoding="utf-8"
        )

    def add(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / f"test_{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")

    def run(self, *, timeout: float = 2, limit: float = 100) -> int:
        settings = ["-c", str(suite.ROOT / "pyproject.toml"), "--rootdir", str(self.folder)]
        limits = ["-o", f"timeout={timeout}", "--limit", str(limit)]
        parts = {"tests": ["--numprocesses", "2", "--dist", "loadfile", str(self.folder)]}
        return suite.main([*settings, *limits], self.folder, parts)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    monkeypatch.setenv("PYTHONPATH", str(suite.ROOT))
    return Tiny(tmp_path)


def test_a_suite_without_failures_passes(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is run again and nothing is reported."""
    tiny.add(a="def test_passes(): pass")
    assert tiny.run() == 0
    assert "FAILED" not in capfd.readouterr().out


def test_a_test_that_fails_once_fails_the_suite(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """It is named as unsteady, because it passes alone; one that fails alone, too, is told apart."""
    tiny.add(a="def test_passes(): pass", b=FAILS_ONCE, c="def test_fails(): assert False")
    assert tiny.run() == suite.TESTS_FAILED
    report = capfd.readouterr().out.rpartition("FAILED:")[2]
    assert "test_b.py::test_fails_once (unsteady: passes alone)" in report
    assert "test_c.py::test_fails (fails alone, too)" in report
    assert "test_passes" not in report


def test_a_stuck_interpreter_lock_ends_with_its_test(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """The test is named with its stack, the rest of its file and of the suite runs, and its child process is ended."""
    tiny.add(a="def test_passes(): pass", b=HOLDS_THE_INTERPRETER, c=FAILS_ONCE, d=HOLDS_IT_AT_THE_VERY_END)
    began = time.monotonic()
    assert tiny.run() == suite.TESTS_FAILED
    assert time.monotonic() - began < 100
    printed = capfd.readouterr()
    report = printed.out.rpartition("FAILED:")[2]
    assert "test_b.py::test_holds_the_interpreter_for_ever (fails alone, too)" in report
    assert "test_c.py::test_fails_once (unsteady: passes alone)" in report
    assert "test_d.py::test_holds_it (fails alone, too)" in report
    assert "in test_holds_the_interpreter_for_ever" in printed.err
    assert (tiny.folder / "went on").exists()
    assert not runs(int((tiny.folder / "child").read_text()))


def test_a_teardown_that_hangs_after_a_failure_ends_too(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """pytest ends its own watch over a test at the first failure; ours goes on."""
    tiny.add(b=HANGS_IN_ITS_TEARDOWN)
    assert tiny.run() == suite.TESTS_FAILED
    assert "test_b.py::test_fails_and_then_hangs" in capfd.readouterr().out.rpartition("FAILED:")[2]


def test_the_suite_as_a_whole_has_a_limit(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """What still runs then is named, and the suite fails."""
    tiny.add(a=WAITS)
    assert tiny.run(timeout=600, limit=15) == suite.LIMIT_REACHED
    printed = capfd.readouterr()
    assert "limit of 15 s" in printed.out
    assert "in test_waits_for_ever" in printed.err


def test_many_failures_are_not_run_again(tiny: Tiny, capfd: pytest.CaptureFixture[str]) -> None:
    """That is a fault and no unsteady test."""
    tiny.add(a="\n".join(f"def test_{number}(): assert False" for number in range(suite.UNSTEADY_MAX + 1)))
    assert tiny.run() == suite.TESTS_FAILED
    report = capfd.readouterr().out.rpartition("FAILED:")[2]
    assert report.count("(not run again)") == suite.UNSTEADY_MAX + 1


def test_a_run_that_breaks_off_fails_the_suite(tiny: Tiny) -> None:
    """A file that cannot be imported is no list of failed tests."""
    tiny.add(a="import a_module_that_is_not_there")
    assert tiny.run() not in (0, None)


def test_each_part_runs_in_processes_that_can_be_replaced() -> None:
    """Without a process of pytest-xdist a stuck test would end the run and hide the rest."""
    assert [name for name, arguments in suite.PARTS.items() if "--numprocesses" not in arguments] == []


def test_the_long_files_are_there() -> None:
    """A file that was renamed would lose its place at the head of the suite."""
    assert [name for name in LONG if not (suite.ROOT / "tests" / name).is_file()] == []
