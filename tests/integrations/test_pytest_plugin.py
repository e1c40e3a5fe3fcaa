"""The pytest plugin, in a pytest of its own, as an application's tests use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Other plugins that happen to be installed here cost seconds at every start.
WITHOUT = [part for name in ("xdist", "schemathesis", "hypothesispytest", "playwright") for part in ("-p", f"no:{name}")]
APP = """
from holdfast import Holdfast, current

hf = Holdfast("sqlite:///never-touched.db")
sent = []

@hf.task
async def send(to: str, note: str = "") -> None:
    if to == "nobody":
        raise ValueError("no such person")
    sent.append(to)
    if note == "twice":
        await send.enqueue("again")

@hf.task
def later(n: int) -> None:
    sent.append(n)
"""
TESTS = """
import pytest
from holdfast.errors import JobFailed
from tasks import hf, later, send, sent

@pytest.fixture(autouse=True)
def nothing_sent():
    sent.clear()

async def test_drain(holdfast_jobs):
    await send.enqueue("ana", note="twice")
    assert sent == []
    await holdfast_jobs.drain()
    assert sent == ["ana", "again"]

def test_drain_sync(holdfast_jobs):
    later.enqueue_sync(1)
    holdfast_jobs.drain_sync()
    assert sent == [1]

async def test_each_test_has_a_database_of_its_own(holdfast_jobs):
    assert holdfast_jobs.enqueued() == []

async def test_assert_enqueued(holdfast_jobs):
    await send.options(tenant="acme").enqueue("ana")
    await send.enqueue("ben", note="x")
    (job,) = holdfast_jobs.assert_enqueued(send, to="ana", tenant="acme")
    holdfast_jobs.assert_enqueued("send", count=2)
    holdfast_jobs.assert_enqueued(later, count=0)
    with pytest.raises(AssertionError, match="expected at least one of send with .*'cid'.*there are: .*ana"):
        holdfast_jobs.assert_enqueued(send, to="cid")

async def test_clock(holdfast_jobs, holdfast_clock):
    await later.options(delay=3600).enqueue(5)
    await holdfast_jobs.drain()
    assert sent == []
    holdfast_clock.advance(3601)
    await holdfast_jobs.drain()
    assert sent == [5]

async def test_inline(holdfast_inline):
    await send.enqueue("ana", note="twice")
    assert sent == ["ana", "again"]
    with pytest.raises(JobFailed, match="no such person"):
        await send.enqueue("nobody")

def test_inline_sync(holdfast_inline):
    later.enqueue_sync(7)
    assert sent == [7]

def test_afterwards_the_app_is_as_it_was():
    assert type(hf).enqueue_jobs is hf.enqueue_jobs.__func__
    assert type(hf.clock).__name__ == "DatabaseClock"
"""


def test_an_application_tests_its_jobs(tmp_path: Path) -> None:
    """Inline, drain, assert_enqueued, clock; and the application's own database is never touched."""
    (tmp_path / "tasks.py").write_text(APP, encoding="utf-8")
    (tmp_path / "test_jobs.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n",
        encoding="utf-8",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT, "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "8 passed" in ran.stdout
    assert not (tmp_path / "never-touched.db").exists()
