"""The units of systemd."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deployment import ROOT, refusal

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/holdfast/bin/holdfast"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_command_exists(unit: Path) -> None:
    """By its full path, as systemd wants it, without a shell."""
    lines = re.findall(r"(?m)^ExecStart(?:Pre)?=(.+)$", unit.read_text())
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == PROGRAM
        assert refusal(arguments) is None


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_process_that_ends_with_an_error_is_started_again(unit: Path) -> None:
    """As one does that its watchdog has ended."""
    assert re.findall(r"(?m)^Restart=(.+)$", unit.read_text()) == ["always"]


def test_a_worker_may_drain_before_systemd_kills_it() -> None:
    """Its own grace period ends first."""
    text = (ROOT / "deploy" / "systemd" / "holdfast-worker@.service").read_text()
    grace, timeout = re.findall(r"--grace (\d+)", text)[0], re.findall(r"TimeoutStopSec=(\d+)", text)[0]
    assert int(grace) < int(timeout)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd on this machine")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify`, with a program that exists here in place of ours."""
    for unit in UNITS:
        text = unit.read_text().replace(PROGRAM, shutil.which("true") or "/bin/true")
        (tmp_path / unit.name.replace("@.", "@1.")).write_text(
            re.sub(r"(?m)^(After|Wants|User|Group|EnvironmentFile)=.*\n", "", text)
        )
    units = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "holdfast-" in line]
    assert (done.returncode, ours) == (0, [])
