"""`make test` is honest: what fails once fails it."""

from __future__ import annotations

import pytest

from tests.conftest import LONG
from tests.support.tiny_suite import FAILS_ONCE, TinySuite
from tools import suite


def test_a_suite_without_failures_passes(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is run again and nothing is reported."""
    tiny.add(a="def test_passes(): pass")
    assert tiny.run() == 0
    assert "FAILED" not in capfd.readouterr().out


def test_a_test_that_fails_once_fails_the_suite(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """It is named as unsteady, because it passes alone; one that fails alone, too, is told apart."""
    tiny.add(a="def test_passes(): pass", b=FAILS_ONCE, c="def test_fails(): assert False")
    assert tiny.run() == suite.TESTS_FAILED
    report = capfd.readouterr().out.rpartition("FAILED:")[2]
    assert "test_b.py::test_fails_once (unsteady: passes alone)" in report
    assert "test_c.py::test_fails (fails alone, too)" in report
    assert "test_passes" not in report


def test_many_failures_are_not_run_again(tiny: TinySuite, capfd: pytest.CaptureFixture[str]) -> None:
    """That is a fault and no unsteady test."""
    tiny.add(a="\n".join(f"def test_{number}(): assert False" for number in range(suite.ALONE_MAX + 1)))
    assert tiny.run() == suite.TESTS_FAILED
    report = capfd.readouterr().out.rpartition("FAILED:")[2]
    assert report.count("(not run again)") == suite.ALONE_MAX + 1


def test_a_run_that_breaks_off_fails_the_suite(tiny: TinySuite) -> None:
    """A file that cannot be imported is no list of failed tests."""
    tiny.add(a="import a_module_that_is_not_there")
    assert tiny.run() not in (0, None)


def test_each_part_runs_in_processes_that_can_be_replaced() -> None:
    """Without a process of pytest-xdist a stuck test would end the run and hide the rest."""
    assert [name for name, arguments in suite.PARTS.items() if "--numprocesses" not in arguments] == []


def test_the_long_files_are_there() -> None:
    """A file that was renamed would lose its place at the head of the suite."""
    assert [name for name in LONG if not (suite.ROOT / "tests" / name).is_file()] == []
