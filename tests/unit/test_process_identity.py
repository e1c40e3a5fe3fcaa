"""Whether a process is dead, as another one of the same machine can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.process_identity import is_dead, own_identity
from tests.support.waiting import until_sync

SAYS_WHO_IT_IS = """
import sys
from holdfast.process_identity import own_identity
print(own_identity(), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", SAYS_WHO_IT_IS], stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


def identity_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_process_that_runs_is_not_dead(child: subprocess.Popen[str]) -> None:
    """Neither ourselves nor another one."""
    assert own_identity() is not None
    assert not is_dead(own_identity())
    assert not is_dead(identity_of(child))


@pytest.mark.case("recovery-9")
def test_a_killed_process_is_dead(child: subprocess.Popen[str]) -> None:
    """Already while its parent has not collected it, and afterwards."""
    identity = identity_of(child)
    child.kill()
    assert until_sync(lambda: is_dead(identity))
    child.wait()
    assert is_dead(identity)


@pytest.mark.case("recovery-9")
def test_a_pid_that_another_process_has_now_counts_as_dead() -> None:
    """Its start time is another one."""
    place, pid, start = str(own_identity()).rsplit(" ", 2)
    assert pid == str(os.getpid())
    assert is_dead(f"{place} {pid} {int(start) - 1}")


@pytest.mark.case("recovery-10")
@pytest.mark.parametrize("part", [0, 1, 2], ids=["host", "boot", "namespace"])
def test_a_process_elsewhere_is_never_taken_for_dead(child: subprocess.Popen[str], part: int) -> None:
    """The same PID on another host, boot or in another PID namespace says nothing."""
    parts = identity_of(child).split(" ")
    child.kill()
    child.wait()
    assert is_dead(" ".join(parts))
    parts[part] += "-other"
    assert not is_dead(" ".join(parts))


@pytest.mark.case("recovery-10")
def test_a_worker_without_an_identity_is_never_taken_for_dead() -> None:
    """One of an earlier release, or of a system without /proc."""
    assert not is_dead(None)
