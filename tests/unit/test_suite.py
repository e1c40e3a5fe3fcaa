"""`make test` on a busy machine: an unsteady test is named and forgiven, a wrong one fails the suite."""

from __future__ import annotations

import pytest

from tests.conftest import LONG
from tools import suite

FIRST, SECOND = "tests/unit/test_a.py::test_one", "tests/unit/test_b.py::test_two"


class Runs:
    """Stands in for pytest: what fails in which run, and what it was asked to run."""

    def __init__(self, *failing: list[str]) -> None:
        self._failing = list(failing)
        self._failed: list[str] = []
        self.asked: list[tuple[str, ...]] = []

    def pytest(self, *arguments: str) -> int:
        self.asked.append(arguments)
        self._failed = self._failing.pop(0) if self._failing else []
        return suite.TESTS_FAILED if self._failed else 0

    def suite(self) -> int:
        return suite.main([], self.pytest, lambda: self._failed)


def test_a_suite_without_failures_runs_each_part_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run again, nothing is said."""
    runs = Runs()
    assert runs.suite() == 0
    assert len(runs.asked) == len(suite.PARTS)
    assert capsys.readouterr().out == ""


def test_what_passes_alone_is_named_with_how_often_it_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each try alone is of those that failed the last time; the next part runs all the same."""
    runs = Runs([FIRST, SECOND], [SECOND], [SECOND], [])
    assert runs.suite() == 0
    assert runs.asked[1:4] == [
        ("--numprocesses", "0", FIRST, SECOND),
        ("--numprocesses", "0", SECOND),
        ("--numprocesses", "0", SECOND),
    ]
    assert "tests/browser" in runs.asked[4]
    told = capsys.readouterr().out.partition("UNSTEADY")[2]
    assert f"{FIRST} (failed 1 times)" in told
    assert f"{SECOND} (failed 3 times)" in told


def test_what_fails_every_time_fails_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    """After three tries alone, and whatever else was forgiven."""
    runs = Runs([FIRST, SECOND], *[[SECOND]] * 10)
    assert runs.suite() == suite.TESTS_FAILED
    assert len(runs.asked) == 1 + suite.TRIES_ALONE
    told = capsys.readouterr().out.partition("FAILED, also alone")[2]
    assert f"{SECOND} (failed 4 times)" in told
    assert FIRST not in told


def test_many_failures_are_not_tried_again() -> None:
    """That is no unsteady test but a fault."""
    runs = Runs([f"{FIRST}[{number}]" for number in range(suite.UNSTEADY_MAX + 1)])
    assert runs.suite() == suite.TESTS_FAILED
    assert len(runs.asked) == 1


def test_the_long_files_are_there() -> None:
    """A file that was renamed would lose its place at the head of the suite."""
    assert [name for name in LONG if not (suite.ROOT / "tests" / name).is_file()] == []


def test_a_run_that_broke_off_fails_the_suite() -> None:
    """Interrupted, or used wrongly: there is no list of failures to go by."""
    assert suite.main([], lambda *_: 2, lambda: [FIRST]) == 2
