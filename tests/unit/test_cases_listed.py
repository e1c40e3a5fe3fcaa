"""The list of production cases and the tool that compares it with the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.source import ROOT
from tools import cases

LIST = """
[life]
title = "L: life"
L1 = "works"
L2 = "is retried"
L3 = "is cancelled"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "cases.toml").write_text(LIST, encoding="utf-8")
    return tmp_path


def write_test(project: Path, mark: str) -> None:
    (project / "tests" / "test_it.py").write_text(f"import pytest\n\n@{mark}\ndef test_it(): ...\n", encoding="utf-8")


def test_cases_without_a_test_are_listed_and_harmless(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mark with several numbers proves them all; what is left is printed with its words, and is no failure."""
    write_test(project, 'pytest.mark.case("L1", "L3")')
    assert cases.main(project) == 0
    printed = capsys.readouterr().out
    assert "2 of 3 have a test: L1 L3" in printed
    assert "no test: is retried" in printed
    assert "no test: works" not in printed


def test_a_number_that_is_not_in_the_list_fails(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped number is not silently ignored: the message says where it is."""
    write_test(project, 'pytest.mark.case("L99")')
    assert cases.main(project) == 1
    assert "tests/test_it.py:3: case L99 is not in tests/cases.toml" in capsys.readouterr().err


def test_a_computed_number_is_refused(project: Path) -> None:
    """A number that cannot be read without running the test is refused."""
    write_test(project, "pytest.mark.case(NUMBER)")
    with pytest.raises(SystemExit, match="plain text"):
        cases.main(project)


def test_a_number_in_two_groups_is_refused(project: Path) -> None:
    """Each case has its own number."""
    with (project / "tests" / "cases.toml").open("a", encoding="utf-8") as file:
        file.write('[again]\ntitle = "again"\nL1 = "works too"\n')
    with pytest.raises(SystemExit, match="L1 is there twice"):
        cases.main(project)


def test_every_mark_of_this_project_is_in_its_list() -> None:
    """The tests name only cases that exist."""
    known = {number for group in cases.load_groups(ROOT / "tests" / "cases.toml") for number in group.cases}
    assert [mark for mark in cases.find_marks(ROOT / "tests") if mark.number not in known] == []
