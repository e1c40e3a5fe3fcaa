"""Commands that applications bring: those of the app's own extensions, and the built-in extraction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main

APP = """
import click
from holdfast import Holdfast

hf = Holdfast()

@click.command()
def sing() -> None:
    click.echo("la")

hf.extend("choir", commands=[sing])
"""


def test_an_application_that_joins_brings_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They take the options that all commands take; a name that nobody knows is still wrong usage."""
    (tmp_path / "choir.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    assert main(["--app", "choir", "sing", "--json"]) == 0
    assert capsys.readouterr().out == "la\n"
    assert main(["--app", "choir", "dance"]) == 2


def test_the_extraction_is_imported_only_when_it_is_called() -> None:
    """The command's start stays light."""
    probe = "import sys; from holdfast.cli import main; main(['--version']); print('holdfast.extraction' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=100)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, no traceback."""
    for name in [name for name in sys.modules if name.startswith("holdfast.extraction")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "packageurl", None)
    assert main(["extract", "."]) == 2
    assert "pip install 'holdfast[extraction]'" in capsys.readouterr().err
