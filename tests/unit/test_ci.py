"""The build server does not skip what it cannot install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import servers, suite


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only one on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_server_that_cannot_be_installed_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`make servers` names it and its package."""
    monkeypatch.setattr(servers, "PROGRAMS", {"a-server-that-is-not-there": "a-package"})
    assert servers.main() == 1
    assert "a-server-that-is-not-there could not be installed. Install Debian's package a-package" in capsys.readouterr().out


@pytest.mark.parametrize("missing", ["browser", "servers"])
def test_the_build_fails_where_a_browser_or_a_server_is_missing(folder: Path, missing: str) -> None:
    """No test runs then: it would be green with skipped tests."""
    if not (suite.ROOT / ".ci").is_dir():
        pytest.skip("a source distribution has no build server")
    for name in ("bash", "dirname", "env"):
        (folder / name).symlink_to(str(shutil.which(name, path=os.defpath)))
    (folder / "python3").symlink_to(sys.executable)
    make = folder / "make"
    make.write_text(f'#!/bin/sh\necho "$@" >> {folder}/made\ncase "$*" in *{missing}*) exit 2;; esac\n', encoding="utf-8")
    make.chmod(0o755)
    assert subprocess.run([suite.ROOT / ".ci" / "run"]).returncode == 2
    assert (folder / "made").read_text(encoding="utf-8").splitlines() == ["browser servers"]
