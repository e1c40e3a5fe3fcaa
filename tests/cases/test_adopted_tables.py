"""The reaper on tables that a team has already: two of them, differently named, on both databases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.adopt import AdoptedTable, Rescued, setup
from holdfast.clock import ManualClock
from holdfast.errors import LeaseLost
from tests.support.adopted import BOTH, JOBS, Team, make_tables, moment, plain


@pytest.fixture
async def hf_with_tables(hf_at: Holdfast) -> Holdfast:
    await make_tables(hf_at)
    return hf_at


@pytest.fixture
async def both(hf_with_tables: Holdfast) -> AsyncIterator[dict[str, Team]]:
    for adopted in BOTH.values():
        await setup.adopt(hf_with_tables, adopted)
    yield {name: Team(hf_with_tables, adopted) for name, adopted in BOTH.items()}


@pytest.fixture(params=["jobs", "asr jobs"])
async def team(request: pytest.FixtureRequest, both: dict[str, Team]) -> Team:
    return both[request.param]


# -- the reaper ----------------------------------------------------------------------------------------------------------


@pytest.mark.case("adopted-1", "adopted-3")
async def test_an_expired_row_with_attempts_left_is_queued_again_after_its_backoff(team: Team, clock: ManualClock) -> None:
    """It is nobody's, its next attempt waits, and the event says who held it."""
    await team.add(*team.ids)
    await team.claim_all()
    clock.advance(11)
    report = await team.hf.reap()
    assert {(one.table, plain(one.id), one.requeued) for one in report.adopted} == {
        (team.adopted.table, one, True) for one in team.ids
    }
    now = clock.now().timestamp()
    for row in (await team.rows()).values():
        assert (row["status"], row["locked_by"], row["lease_expires_at"], row["attempt_count"]) == ("queued", None, None, 1)
        assert now - 0.01 <= moment(row["next_earliest_run_at"]) <= now + 5.01
    for (job_id, data), wanted in zip(sorted(await team.events()), sorted(map(str, team.ids)), strict=True):
        assert job_id == wanted
        assert data == {
            "type": "reaper:requeued",
            "table": team.adopted.table,
            "details": {"reason": "lease_expired", "locked_by": "w1"},
            "at": clock.now().isoformat(),
        }
    assert (await team.hf.reap()).adopted == []


@pytest.mark.case("adopted-2")
async def test_an_expired_row_without_attempts_left_is_failed(team: Team, clock: ManualClock) -> None:
    """With a code, a reason that a person can read, and its event."""
    await team.add(team.ids[0], max_attempts=1)
    await team.claim_all()
    clock.advance(11)
    (rescued,) = (await team.hf.reap()).adopted
    assert not rescued.requeued
    (row,) = (await team.rows()).values()
    assert (row["status"], row["fail_code"]) == ("failed", "timeout")
    assert row["fail_reason"] == "Failed after 1 attempts - machine crashed or timed out."
    ((_, data),) = await team.events()
    assert data["type"] == "reaper:failed(timeout)"


@pytest.mark.case("adopted-3")
async def test_a_held_row_and_one_whose_time_has_not_come_are_left_alone(team: Team, clock: ManualClock) -> None:
    """A recent heartbeat, and a moment in next_earliest_run_at, keep the reaper away."""
    await team.add(team.ids[0])
    (row,) = await team.work.claim("w1", lease=10)
    clock.advance(9)
    await team.work.heartbeat(row, lease=10)
    clock.advance(9)
    assert (await team.hf.reap()).adopted == []
    soon = "2030-01-01 01:00:00" if team.hf.store.name == "sqlite" else clock.now().replace(hour=1)
    async with team.hf.transaction() as tx:
        await tx.execute(f'UPDATE "{team.adopted.table}" SET next_earliest_run_at = $1', soon)
    clock.advance(60)
    assert (await team.hf.reap()).adopted == []
    clock.advance(3600)
    assert len((await team.hf.reap()).adopted) == 1


async def test_the_deadline_is_the_expected_duration_times_the_factor_of_the_stage(team: Team, clock: ManualClock) -> None:
    """A row that beats for ever is still ended: asr by 12, any other stage by 6, and the grace behind it."""
    await team.add(team.ids[0], stage="ASR", expected_duration_ms=10_000)
    await team.add(team.ids[1], stage="o\"t'her", expected_duration_ms=10_000)
    await team.add(team.ids[2])
    await team.claim_all(lease=100_000)
    clock.advance(60 + 29)
    assert (await team.hf.reap()).adopted == []
    clock.advance(2)
    assert [(plain(one.id), one.reason) for one in (await team.hf.reap()).adopted] == [(team.ids[1], "deadline_exceeded")]
    clock.advance(60)
    assert [plain(one.id) for one in (await team.hf.reap()).adopted] == [team.ids[0]]


@pytest.mark.case("adopted-4")
async def test_each_action_is_counted_and_logged(
    both: dict[str, Team], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """By table and stage, and in one line each."""
    team = both["asr jobs"]
    await team.add(team.ids[0], stage="asr")
    await team.add(team.ids[1], stage="asr", max_attempts=1)
    await team.claim_all()
    clock.advance(11)
    with caplog.at_level(logging.WARNING, "holdfast"):
        await team.hf.reap()
    lines = [record.getMessage() for record in caplog.records if "asr jobs" in record.getMessage()]
    assert [line.rpartition(": ")[2].partition(",")[0] for line in sorted(lines)] == ["queued again", "failed"]
    counted = {(one.name, one.queue, one.label): one.n for one in await team.hf.store.tally_totals()}
    assert counted["reaper_requeued", "asr jobs", "asr"] == 1
    assert counted["reaper_failed", "asr jobs", "asr"] == 1
    assert any(name == "reaper_scan" and queue == "asr jobs" for name, queue, _ in counted)


@pytest.mark.case("adopted-5")
async def test_an_error_in_one_table_does_not_stop_the_next(
    both: dict[str, Team], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The pass goes on, and the log says which one was left out and why; the table's next pass works again."""
    for team in both.values():
        await team.add(team.ids[0])
        await team.claim_all()
    hf = both["jobs"].hf
    async with hf.transaction() as tx:
        await tx.execute("ALTER TABLE asr_events RENAME TO gone")
    clock.advance(11)
    assert [one.table for one in (await hf.reap()).adopted] == ["jobs"]
    assert "asr jobs was left out of this pass" in caplog.text
    async with hf.transaction() as tx:
        await tx.execute("ALTER TABLE gone RENAME TO asr_events")
    assert [one.table for one in (await hf.reap()).adopted] == ["asr jobs"]


async def test_many_reapers_at_once_handle_each_row_once(both: dict[str, Team], clock: ManualClock, database_url: str) -> None:
    """Eight of them with connections of their own: one event for each row."""
    team = both["jobs"]
    await team.add(*range(1, 201))
    await team.work.claim("w1", limit=200, lease=10)
    clock.advance(11)
    others = [Holdfast(database_url, clock=clock) for _ in range(8)]
    try:
        reports = await asyncio.gather(*(one.reap() for one in others))
    finally:
        for one in others:
            await one.aclose()
    handled = [one.id for report in reports for one in report.adopted]
    assert sorted(handled) == list(range(1, 201))
    assert len(await team.events()) == 200


async def test_requeued_rows_are_republished_after_the_commit(
    hf_with_tables: Holdfast, clock: ManualClock, database_url: str
) -> None:
    """The hook sees them queued; and should it fail, the rows are queued all the same."""
    await setup.adopt(hf_with_tables, JOBS)
    told: list[tuple[Rescued, str]] = []

    async def republish(rows: Any) -> None:
        states = await Team(hf_with_tables, JOBS).rows()
        told.extend((row, states[row.id]["status"]) for row in rows)
        raise RuntimeError("the dispatcher is away")

    hf = Holdfast(database_url, clock=clock, adopted=[AdoptedTable("jobs", on_requeued=republish)])
    try:
        team = Team(hf, JOBS)
        await team.add(1)
        await team.add(2, max_attempts=1)
        await team.claim_all()
        clock.advance(11)
        assert len((await hf.reap()).adopted) == 2
        ((row, status),) = told
        assert (row.id, status, row.locked_by) == (1, "queued", "w1")
    finally:
        await hf.aclose()


# -- workers -------------------------------------------------------------------------------------------------------------


async def test_a_row_is_claimed_once_and_finished(team: Team) -> None:
    """Two workers at once never hold the same row; a finished one is nobody's."""
    await team.add(*team.ids)
    claims = await asyncio.gather(*(team.work.claim(f"w{n}", limit=2) for n in range(4)))
    rows = [row for claim in claims for row in claim]
    assert sorted(plain(row.id) for row in rows) == team.ids
    for row in rows:
        assert (row.attempt, row.max_attempts) == (1, 3)
        await team.work.finish(row)
    assert {row["status"] for row in (await team.rows()).values()} == {"completed"}


async def test_a_failure_is_tried_again_until_the_attempts_are_used_up(team: Team, clock: ManualClock) -> None:
    """After its backoff; then failed, with what the worker said."""
    await team.add(team.ids[0], max_attempts=2)
    (row,) = await team.work.claim("w1")
    assert await team.work.fail(row, code="gpu", reason="no memory") is True
    clock.advance(6)
    (row,) = await team.work.claim("w1")
    assert row.attempt == 2
    assert await team.work.fail(row, code="gpu", reason="no memory") is False
    (stored,) = (await team.rows()).values()
    assert (stored["status"], stored["fail_code"], stored["fail_reason"]) == ("failed", "gpu", "no memory")


async def test_a_run_that_lost_its_row_can_write_nothing(team: Team, clock: ManualClock) -> None:
    """Also where the same worker has claimed the row again meanwhile."""
    await team.add(team.ids[0])
    (old,) = await team.work.claim("w1", lease=10)
    clock.advance(11)
    await team.hf.reap()
    clock.advance(6)
    (new,) = await team.work.claim("w1", lease=10)
    for refused in (team.work.heartbeat(old), team.work.finish(old), team.work.fail(old, code="c", reason="r")):
        with pytest.raises(LeaseLost):
            await refused
    await team.work.finish(new)


async def test_finishing_commits_together_with_what_the_run_writes(team: Team) -> None:
    """In the caller's transaction: rolled back, the row is held as before."""
    await team.add(team.ids[0])
    (row,) = await team.work.claim("w1")
    with pytest.raises(RuntimeError, match="no"):
        async with team.hf.transaction() as tx:
            await team.work.finish(row, tx=tx)
            raise RuntimeError("no")
    assert [one["status"] for one in (await team.rows()).values()] == ["running"]
    await team.work.finish(row)
