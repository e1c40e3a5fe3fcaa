"""Run logs: numbered lines, written once, many runs in one call, each behind its own fence."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.clock import ManualClock
from holdfast.errors import StorageError, StorageUnavailable
from holdfast.store.protocol import Claimed, Leaving, LogBatch, Store
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import LEASE, append, by_hand, claim, complete, insert_some, leave, line, log_of, reap, start
from tests.conftest import open_store


def batch(run: Claimed, *numbers: int) -> LogBatch:
    return LogBatch(run.id, run.run_id, [line(run, no) for no in numbers])


async def numbers(store: Store, run: Claimed) -> list[int]:
    return [one.no for one in await log_of(store, run)]


@pytest.mark.case("logger-2")
async def test_a_line_comes_back_with_all_it_says(store: Store, clock: ManualClock) -> None:
    """Number, level, step, message, duration and metadata."""
    run = await start(store)
    said = line(run, 1, "packed 😀", level="warning", step="pack", duration_ms=12.5, metadata={"n": [1, {"é": None}]})
    assert await append(store, run, said)
    said.created_at = clock.now()
    assert [said] == await log_of(store, run)


# -- time ------------------------------------------------------------------------------------------------------------------


async def test_a_line_without_a_time_has_that_of_its_writing(store: Store, clock: ManualClock) -> None:
    """The database's clock dates it."""
    run = await start(store)
    await append(store, run, line(run, 1))
    (written,) = await log_of(store, run)
    assert (written.created_at, written.step, written.duration_ms, written.metadata) == (clock.now(), None, None, None)


async def test_the_time_of_a_line_is_moved_to_the_databases_clock(store: Store, clock: ManualClock) -> None:
    """Said 90 seconds ago by the worker's clock is 90 seconds ago by the database's, years apart as the two may be."""
    run = await start(store)
    said_at = datetime.now(UTC) - timedelta(seconds=90)
    await append(store, run, line(run, 1, created_at=said_at), line(run, 2, created_at=said_at + timedelta(seconds=60)))
    first, second = [one.created_at for one in await log_of(store, run)]
    assert first is not None and second is not None
    assert timedelta(seconds=90) <= clock.now() - first < timedelta(seconds=120)
    assert abs(second - first - timedelta(seconds=60)) < timedelta(milliseconds=1)


async def test_no_line_is_said_in_the_future(store: Store, clock: ManualClock) -> None:
    """A worker's clock that was set back between the saying and the sending dates it now."""
    run = await start(store)
    await append(store, run, line(run, 1, created_at=datetime.now(UTC) + timedelta(hours=1)))
    assert [one.created_at for one in await log_of(store, run)] == [clock.now()]


# -- once, in order --------------------------------------------------------------------------------------------------------


async def test_a_repeated_flush_is_harmless(store: Store) -> None:
    """Lines that are there are left as they are; new ones of the same batch are added."""
    run = await start(store)
    assert await append(store, run, line(run, 1, "first"), line(run, 2, "second"))
    assert await append(store, run, line(run, 2, "changed"), line(run, 3, "third"))
    assert [one.message for one in await log_of(store, run)] == ["first", "second", "third"]


async def test_the_same_flush_twice_at_once_is_written_once(store: Store, open_another: OpenAnother) -> None:
    """As when an answer was lost and the call is made again while the first is still under way."""
    run, other = await start(store), open_another()
    twice = [batch(run, *range(1, 301))]
    for answer in await asyncio.gather(store.log_append_if_leased(twice), other.log_append_if_leased(twice)):
        assert answer == {run.run_id}
    assert await numbers(store, run) == list(range(1, 301))


async def test_each_run_has_a_log_of_its_own(store: Store) -> None:
    """The next attempt starts at one again, and the old log stays readable."""
    run = await start(store)
    await append(store, run, line(run, 1, "old"))
    await leave(store, run, Leaving.RETRY)
    (again,) = (await claim(store)).jobs
    await append(store, again, line(again, 1, "new"))
    assert [one.message for one in await log_of(store, run)] == ["old"]
    assert [one.message for one in await log_of(store, again)] == ["new"]


@pytest.mark.case("logger-1")
async def test_a_line_knows_its_job_tenant_and_project(store: Store) -> None:
    """They are taken from the job, so that access can be decided from the line alone."""
    one, other = await start(store, tenant="acme", project="shop"), await start(store)
    assert await store.log_append_if_leased([batch(other, 1), batch(one, 1)]) == {one.run_id, other.run_id}
    rows = await by_hand(store, "SELECT job_id, tenant, project FROM {logs} ORDER BY job_id")
    found = {(str(row["job_id"]), row["tenant"], row["project"]) for row in rows}
    assert found == {(one.id, "acme", "shop"), (other.id, None, None)}


# -- the fence -------------------------------------------------------------------------------------------------------------


@pytest.mark.case("L15")
async def test_a_run_that_lost_its_lease_is_refused_and_the_others_are_taken(store: Store) -> None:
    """In one call: each run stands behind its own fence, wherever in the call it is."""
    await insert_some(store, 5)
    runs = (await claim(store, 5)).jobs
    await leave(store, runs[0], Leaving.RETRY)
    (again,) = (await claim(store, worker="another")).jobs
    assert again.id == runs[0].id
    await leave(store, runs[2], Leaving.FAIL)
    answer = await store.log_append_if_leased([batch(run, 1, 2) for run in [again, *reversed(runs)]])
    assert answer == {again.run_id, runs[1].run_id, runs[3].run_id, runs[4].run_id}
    assert [await numbers(store, run) for run in [again, *runs]] == [[1, 2], [], [1, 2], [], [1, 2], [1, 2]]


async def test_a_run_that_completed_its_job_may_finish_its_log(store: Store) -> None:
    """A task can complete its job in its own transaction while lines are still on their way: nobody else can have done it."""
    run = await start(store)
    await complete(store, run)
    assert await append(store, run, line(run, 1))
    assert await numbers(store, run) == [1]


async def test_a_run_id_that_belongs_to_another_job_is_refused(store: Store) -> None:
    """Both must be right: nobody writes into a neighbour's log."""
    one, other = await start(store), await start(store)
    assert await store.log_append_if_leased([LogBatch(one.id, other.run_id, [line(other, 1)])]) == set()
    assert await numbers(store, one) == [] == await numbers(store, other)


async def test_an_empty_flush_still_tells_whether_the_lease_holds(store: Store) -> None:
    """Nothing to write is no error, and no lease is no lease."""
    run = await start(store)
    assert await append(store, run)
    await leave(store, run, Leaving.RELEASE)
    assert not await append(store, run)
    assert await store.log_append_if_leased([]) == set()


async def refuses_whole(store: Store, **bad: object) -> None:
    one, other = await start(store), await start(store)
    broken = line(other, 2)
    for name, value in bad.items():
        setattr(broken, name, value)
    with pytest.raises(StorageError) as raised:
        await store.log_append_if_leased([batch(one, 1), LogBatch(other.id, other.run_id, [line(other, 1), broken])])
    assert not isinstance(raised.value, StorageUnavailable)
    assert await numbers(store, one) == [] == await numbers(store, other)


@pytest.mark.parametrize("bad", [{"message": "half \ud83d"}, {"metadata": {"a": "\ud83d"}}, {"level": None}, {"no": 2**70}])
async def test_a_call_with_a_line_that_cannot_be_stored_is_refused_whole(store: Store, bad: dict[str, object]) -> None:
    """Nothing of it is written, and it is not called an outage, which would be tried again without end."""
    await refuses_whole(store, **bad)


@pytest.mark.parametrize("bad", [{"message": "nul \0"}, {"metadata": {"a": "\0"}}, {"no": 2**40}])
async def test_what_only_postgresql_cannot_store_is_refused_whole(postgres_url: str, bad: dict[str, object]) -> None:
    """SQLite takes these."""
    store = open_store("postgres", postgres_url)
    await refuses_whole(store, **bad)
    await store.close()


async def test_two_appenders_and_a_reaper_leave_a_log_without_holes(
    store: Store, open_another: OpenAnother, clock: ManualClock
) -> None:
    """Whatever was taken is there, the reaper's line comes after all of it, and nothing is taken after that."""
    await insert_some(store, 20)
    runs = (await claim(store, 20)).jobs
    clock.advance(LEASE + 1)
    appenders, taken = (store, open_another()), dict.fromkeys((run.run_id for run in runs), 0)

    async def write(own: Store, mine: list[Claimed]) -> None:
        for no in range(1, 16):
            answer = await own.log_append_if_leased([batch(run, 2 * no - 1, 2 * no) for run in mine])
            for run_id in answer:
                taken[run_id] = max(taken[run_id], 2 * no)

    async def rescue(own: Store) -> None:
        for _ in range(10):
            await reap(own, limit=2)

    # Both orders of the same runs, and some runs in both calls: neither waits for the other in a circle.
    await asyncio.gather(
        write(appenders[0], runs), write(appenders[1], runs[::-1]), *(rescue(open_another()) for _ in range(2))
    )
    while await reap(store):
        pass
    for run in runs:
        log = await log_of(store, run)
        assert [one.no for one in log] == list(range(1, taken[run.run_id] + 2))
        assert [one.message for one in log if one.message != "hello"] == [log[-1].message]
