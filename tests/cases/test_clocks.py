"""A worker's clock that is an hour off changes nothing: the database's clock decides."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, State, ids
from tests.cases.steps import comes_to, drain, ends, working

HOUR = 3600.0


@pytest.fixture(params=[-HOUR, HOUR], ids=["an hour behind", "an hour ahead"])
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """This process's clock is off; the server's is not."""
    offset: float = request.param
    monkeypatch.setattr(ids, "_last", ids._last)  # ids ascend for ever, also those of later tests
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + offset)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(offset * 1e9))
    return offset


@pytest.fixture
async def skewed(postgres_url: str, skew: float) -> Holdfast:
    return Holdfast(postgres_url)


@pytest.mark.case("I27")
async def test_leases_and_times_come_from_the_database(skewed: Holdfast, skew: float) -> None:
    """Start, lease and end lie in the real now, and a reaper of the skewed process leaves the job alone."""
    go = asyncio.Event()

    @skewed.task
    async def work() -> str:
        await go.wait()
        return "done"

    job = await work.enqueue()
    async with working(skewed):
        running = await comes_to(skewed, job, State.RUNNING)
        real_now = datetime.now(UTC)
        assert running.started_at and abs(running.started_at - real_now) < timedelta(seconds=60)
        assert running.lease_expires_at and abs(
            running.lease_expires_at - running.started_at - timedelta(seconds=300)
        ) < timedelta(seconds=1)
        assert not await skewed.reap()
        go.set()
        done = await ends(skewed, job)
    assert done.attempt == 1 and done.finished_at and abs(done.finished_at - real_now) < timedelta(seconds=60)
    assert abs(await skewed.store.clock_offset() - skew) < 60
    await skewed.aclose()


@pytest.mark.case("I27")
async def test_order_and_schedules_do_not_follow_the_skewed_clock(skewed: Holdfast, skew: float, postgres_url: str) -> None:
    """A delay is counted by the database, and jobs of skewed and honest processes run in the order they came."""
    ran: list[str] = []

    @skewed.task
    async def note(name: str) -> None:
        ran.append(name)

    honest = Holdfast(postgres_url)
    honest_note = honest.task(name="note")(note.fn)
    scheduled = await note.options(delay=600).enqueue("scheduled")
    first = await note.enqueue("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: time.monotonic_ns() + 10**18)
        await honest_note.enqueue("second")
    await note.enqueue("third")
    await drain(skewed, concurrency=1)
    assert ran == ["first", "second", "third"]
    waiting = await skewed.get(scheduled.id)
    assert waiting.status == "scheduled" and waiting.run_at and first.id
    assert abs(waiting.run_at - datetime.now(UTC) - timedelta(seconds=600)) < timedelta(seconds=60)
    await skewed.aclose()
    await honest.aclose()
