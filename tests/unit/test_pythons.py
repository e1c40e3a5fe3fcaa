"""`make test-pythons` finds each Python once, and only those that run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import pythons


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one on the PATH, apart from that of the shell; there is no pyenv."""
    monkeypatch.delenv("PYTHONS", raising=False)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    found = tmp_path / "bin"
    found.mkdir()
    monkeypatch.setenv("PATH", str(found))
    return found


def interpreter(path: Path, prints: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{prints}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_each_minor_version_is_found_once_on_the_path_and_in_pyenv(folder: Path) -> None:
    """The PATH comes first, and the oldest version is the first of the list."""
    newer = interpreter(folder / "python3.13", "echo 3.13.1")
    older = interpreter(Path(os.environ["PYENV_ROOT"], "versions/3.12.4/bin/python3.12"), "echo 3.12.4")
    interpreter(Path(os.environ["PYENV_ROOT"], "versions/3.13.0/bin/python3.13"), "echo 3.13.0")
    assert list(pythons.found().items()) == [((3, 12, 4), older), ((3, 13, 1), newer)]


def test_a_shim_without_its_python_is_left_out(folder: Path) -> None:
    """pyenv puts a name on the PATH for versions that are not switched on."""
    interpreter(folder / "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    behind = interpreter(Path(os.environ["PYENV_ROOT"], "versions/3.12.4/bin/python3.12"), "echo 3.12.4")
    assert pythons.found() == {(3, 12, 4): behind}


def test_pythons_that_are_named_are_the_only_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make test-pythons PYTHONS=…` does not look any further."""
    interpreter(folder / "python3.13", "echo 3.13.1")
    monkeypatch.setenv("PYTHONS", sys.executable)
    assert pythons.found() == {sys.version_info[:3]: sys.executable}


def test_the_supported_versions_are_those_that_pyproject_names() -> None:
    """They are what a campaign must cover."""
    assert {(3, 11), (3, 13)} <= pythons.supported()
    assert (3, 0) not in pythons.supported()
