"""No hang holds up the rest of the suite, not even one that holds the interpreter lock."""

from __future__ import annotations

import pytest

from tests.support.processes import runs
from tests.support.tiny_suite import FAILS_ONCE, TinySuite
from tools import suite

pytestmark = pytest.mark.timeout(300)  # each starts several processes, one after the other

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
    from pathlib import Path

    def test_waits_for_ever():
        Path(__file__).with_name("began").touch()
        threading.Event().wait()
"""


def test_a_stuck_interpreter_lock_ends_with_its_test(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """The test is named with its stack, the rest of its file and of the suite runs, and its child process is ended."""
    tiny.add(a="def test_passes(): pass", b=HOLDS_THE_INTERPRETER, c=FAILS_ONCE, d=HOLDS_IT_AT_THE_VERY_END)
    assert tiny.run() == suite.TESTS_FAILED
    printed = capfd.readouterr()
    report = printed.out.rpartition("FAILED:")[2]
    assert "test_b.py::test_holds_the_interpreter_for_ever (fails alone, too)" in report
    assert "test_c.py::test_fails_once (unsteady: passes alone)" in report
    assert "test_d.py::test_holds_it (fails alone, too)" in report
    assert "in test_holds_the_interpreter_for_ever" in printed.err
    assert (tiny.folder / "went on").exists()
    assert not runs(int((tiny.folder / "child").read_text()))


def test_a_teardown_that_hangs_after_a_failure_ends_too(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """pytest ends its own watch over a test at the first failure; ours goes on."""
    tiny.add(b=HANGS_IN_ITS_TEARDOWN)
    assert tiny.run() == suite.TESTS_FAILED
    assert "test_b.py::test_fails_and_then_hangs" in capfd.readouterr().out.rpartition("FAILED:")[2]


def test_the_suite_as_a_whole_has_a_limit(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """What still runs then is named, and the suite fails."""
    tiny.add(a=WAITS)
    for limit in (6, 30, 120):  # a busy machine may not have come to the test before
        assert tiny.run(timeout=600, limit=limit) == suite.LIMIT_REACHED
        printed = capfd.readouterr()
        assert f"limit of {limit} s" in printed.out
        if (tiny.folder / "began").exists():
            break
    assert "in test_waits_for_ever" in printed.err


def test_processes_that_die_close_together_end_only_their_own_tests(tiny: TinySuite) -> None:
    """A process that takes the place of one is given work only once it knows the tests."""
    dies = {f"dies_{number}": "import os\ndef test_it(): os._exit(3)" for number in range(4)}
    lives = {
        f"lives_{number}": "from pathlib import Path\ndef test_it(): Path(__file__).with_suffix('.ran').touch()"
        for number in range(4)
    }
    tiny.add(**dies, **lives)
    assert tiny.run() == suite.TESTS_FAILED
    assert len(list(tiny.folder.glob("*.ran"))) == len(lives)
