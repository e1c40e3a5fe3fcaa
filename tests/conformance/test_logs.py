"""Run logs: numbered lines, written once, read from anywhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.clock import ManualClock
from holdfast.ids import new_run_id
from holdfast.store.protocol import Leaving, Store
from tests.conformance.scene import by_hand, claim, leave, line, start


@pytest.mark.case("logger-2")
async def test_a_line_comes_back_with_all_it_says(store: Store, clock: ManualClock) -> None:
    """Number, level, step, message, duration, metadata and its own time."""
    run = await start(store)
    at = clock.now() + timedelta(microseconds=125_000)
    said = line(
        run, 1, "packed 😀", level="warning", step="pack", duration_ms=12.5, metadata={"n": [1, {"é": None}]}, created_at=at
    )
    assert await store.log_append_if_leased(run.id, run.run_id, [said])
    assert [said] == await store.log_read(run.run_id, after=0, limit=10)


async def test_a_line_without_a_time_has_that_of_its_writing(store: Store, clock: ManualClock) -> None:
    """The database's clock dates it."""
    run = await start(store)
    await store.log_append_if_leased(run.id, run.run_id, [line(run, 1)])
    (written,) = await store.log_read(run.run_id, after=0, limit=10)
    assert (written.created_at, written.step, written.duration_ms, written.metadata) == (clock.now(), None, None, None)


async def test_lines_are_read_by_number_after_a_cursor(store: Store) -> None:
    """In the order of their numbers, however they were written, and no more than asked for."""
    run = await start(store)
    await store.log_append_if_leased(run.id, run.run_id, [line(run, no) for no in (3, 1, 2)])
    await store.log_append_if_leased(run.id, run.run_id, [line(run, no) for no in (10, 4)])

    async def numbers(after: int, limit: int) -> list[int]:
        return [one.no for one in await store.log_read(run.run_id, after=after, limit=limit)]

    assert await numbers(0, 10) == [1, 2, 3, 4, 10]
    assert await numbers(2, 2) == [3, 4]
    assert await numbers(10, 10) == []


async def test_a_repeated_flush_is_harmless(store: Store) -> None:
    """Lines that are there are left as they are; new ones of the same batch are added."""
    run = await start(store)
    batch = [line(run, 1, "first"), line(run, 2, "second")]
    assert await store.log_append_if_leased(run.id, run.run_id, batch)
    assert await store.log_append_if_leased(run.id, run.run_id, [line(run, 2, "changed"), line(run, 3, "third")])
    messages = [one.message for one in await store.log_read(run.run_id, after=0, limit=10)]
    assert messages == ["first", "second", "third"]


async def test_an_empty_flush_still_tells_whether_the_lease_holds(store: Store) -> None:
    """Nothing to write is no error, and no lease is no lease."""
    run = await start(store)
    assert await store.log_append_if_leased(run.id, run.run_id, [])
    await leave(store, run, Leaving.RELEASE)
    assert not await store.log_append_if_leased(run.id, run.run_id, [])


async def test_each_run_has_a_log_of_its_own(store: Store) -> None:
    """The next attempt starts at one again, and the old log stays readable."""
    run = await start(store)
    await store.log_append_if_leased(run.id, run.run_id, [line(run, 1, "old")])
    await leave(store, run, Leaving.RETRY)
    (again,) = (await claim(store)).jobs
    await store.log_append_if_leased(again.id, again.run_id, [line(again, 1, "new")])
    assert [one.message for one in await store.log_read(run.run_id, after=0, limit=10)] == ["old"]
    assert [one.message for one in await store.log_read(again.run_id, after=0, limit=10)] == ["new"]


@pytest.mark.case("logger-1")
async def test_a_line_knows_its_job_tenant_and_project(store: Store) -> None:
    """They are taken from the job, so that access can be decided from the line alone."""
    run = await start(store, tenant="acme", project="shop")
    await store.log_append_if_leased(run.id, run.run_id, [line(run, 1)])
    (row,) = await by_hand(store, "SELECT job_id, tenant, project FROM {logs}")
    assert (str(row["job_id"]), row["tenant"], row["project"]) == (run.id, "acme", "shop")


async def test_a_run_that_wrote_nothing_has_an_empty_log(store: Store) -> None:
    """So has a run that never was."""
    assert await store.log_read(new_run_id(), after=0, limit=10) == []
