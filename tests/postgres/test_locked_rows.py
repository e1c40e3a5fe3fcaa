"""Other sessions lock rows for as long as they like: no run loses its job for it, and no other run waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast import Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.finish import Finisher, release_of
from holdfast.ids import new_run_id
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.protocol import Beat, Claimed, Completion, Departure, Leaving, LogBatch
from tests.cases.steps import ends, working
from tests.conformance.scene import LEASE, claim, insert_some, line, log_of, new_job, reap, start, state_of
from tests.support.waiting import until

LOCK = "SELECT 1 FROM holdfast.jobs WHERE id = ANY ($1::uuid[]) FOR UPDATE"


@pytest.fixture
async def store(postgres_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(postgres_url, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[Any]:
    """A session that belongs to someone else."""
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


async def two_runs(store: PostgresStore) -> list[Claimed]:
    await insert_some(store, 2)
    return (await claim(store, 2)).jobs


def beats(runs: list[Claimed]) -> list[Beat]:
    return [Beat(run.id, run.run_id, LEASE) for run in runs]


async def one_waits(connection: Any) -> None:
    """Until a session of this database waits for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    await until(lambda: connection.fetchval(waiting))


# -- what a duplicate locks ------------------------------------------------------------------------------------------------


@pytest.mark.case("L33")
async def test_a_duplicate_in_an_open_transaction_locks_no_row_that_a_run_needs(store: PostgresStore, other: Any) -> None:
    """The older job's run goes on and ends while the caller's transaction is still open."""
    run = await start(store, unique_key="k")
    statement = store.insert_statement([new_job(unique_key="k")])
    async with other.transaction():
        (row,) = await other.fetch(statement.sql, statement.parameter)
        assert row[0] == run.id
        (held,) = await store.lease_extend_if_held(beats([run]))
        assert held.extended
        assert await store.job_complete_if_leased([Completion(run.id, run.run_id, "1")]) == {run.run_id}


async def test_a_duplicate_of_a_job_that_is_just_being_inserted_waits_and_gets_its_id(store: PostgresStore, other: Any) -> None:
    """The transaction that inserts it commits meanwhile: a snapshot from before would not see it."""
    first, second = new_job(unique_key="k"), new_job(unique_key="k")
    statement = store.insert_statement([first])
    async with other.transaction():
        await other.fetch(statement.sql, statement.parameter)
        asking = asyncio.ensure_future(store.job_insert_many([second]))
        async with _beside(store) as watching:
            await one_waits(watching)
    (answer,) = await asking
    assert (answer.id, answer.created) == (first.id, False)


async def test_a_job_whose_older_twin_is_just_ending_is_created(store: PostgresStore, other: Any) -> None:
    """The older job ends in a transaction that the insert waits for: there is no active job to answer with."""
    run = await start(store, unique_key="k")
    statement = store.complete_statement(Completion(run.id, run.run_id, "1"))
    async with other.transaction():
        await other.fetch(statement.sql, statement.parameter)
        asking = asyncio.ensure_future(store.job_insert_many([new_job(unique_key="k")]))
        async with _beside(store) as watching:
            await one_waits(watching)
    (answer,) = await asking
    assert answer.created


async def test_a_job_whose_older_twin_ends_between_two_looks_is_created(store: PostgresStore, other: Any) -> None:
    """The insert met the older job, the look behind it finds none: it is inserted after all, once."""
    run = await start(store, unique_key="k")
    await other.execute("""
        CREATE FUNCTION wait_between() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock(4242); RETURN NULL; END';
        CREATE TRIGGER wait_between AFTER INSERT ON holdfast.jobs FOR EACH STATEMENT EXECUTE FUNCTION wait_between()""")
    async with other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(4242)")
        asking = asyncio.ensure_future(store.job_insert_many([new_job(unique_key="k")]))
        async with _beside(store) as watching:
            await one_waits(watching)
        await store.job_complete_if_leased([Completion(run.id, run.run_id, "1")])
    (answer,) = await asking
    assert answer.created
    assert (await store.job_counts())["queued"] == 1


# -- what a locked row holds up ----------------------------------------------------------------------------------------------


@pytest.mark.case("L33")
async def test_a_locked_row_holds_up_no_other_heartbeat(store: PostgresStore, other: Any, clock: ManualClock) -> None:
    """The other leases are extended; the locked run still has its job, is not reaped, and is extended once it is free."""
    locked, free = await two_runs(store)
    async with other.transaction():
        await other.fetch(LOCK, [locked.id])
        clock.advance(LEASE - 1)
        answers = {held.run_id: held.extended for held in await store.lease_extend_if_held(beats([locked, free]))}
        assert answers == {locked.run_id: False, free.run_id: True}
        clock.advance(LEASE - 1)
        assert await reap(store) == []
    (held,) = await store.lease_extend_if_held(beats([locked]))
    assert held.extended
    assert await reap(store) == []


async def test_a_locked_row_tells_of_a_wish_to_cancel(store: PostgresStore, other: Any) -> None:
    """Its worker learns of it although the lease could not be extended."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    async with other.transaction():
        await other.fetch(LOCK, [run.id])
        (held,) = await store.lease_extend_if_held(beats([run]))
    assert (held.extended, held.cancel_requested, held.cancel_requested_by) == (False, True, "ana")


async def test_a_locked_row_of_another_run_is_a_lost_lease(store: PostgresStore, other: Any) -> None:
    """The answer is no reason to go on: the run id is another one."""
    run = await start(store)
    async with other.transaction():
        await other.fetch(LOCK, [run.id])
        assert await store.lease_extend_if_held([Beat(run.id, new_run_id(), LEASE)]) == []


async def test_a_locked_row_holds_up_no_other_end(store: PostgresStore, other: Any) -> None:
    """Completions and departures of the other rows are written; those of the locked ones are still to be written."""
    await insert_some(store, 4)
    done, locked_done, left, locked_left = (await claim(store, 4)).jobs
    completions = [Completion(run.id, run.run_id, "1") for run in (done, locked_done)]
    departures = [Departure(id=run.id, run_id=run.run_id, how=Leaving.FAIL) for run in (left, locked_left)]
    async with other.transaction():
        await other.fetch(LOCK, [locked_done.id, locked_left.id])
        assert await store.job_complete_if_leased(completions) == {done.run_id}
        assert await store.job_leave_if_leased(departures) == {left.run_id: State.FAILED}
        states = await store.run_states([(run.id, run.run_id) for run in (done, locked_done, left, locked_left)])
        assert [states[run.run_id].value for run in (done, locked_done, left, locked_left)] == [
            "completed",
            "running",
            "failed",
            "running",
        ]
    assert await store.job_complete_if_leased(completions) == {locked_done.run_id}
    assert await store.job_leave_if_leased(departures) == {locked_left.run_id: State.FAILED}


async def test_a_locked_row_holds_up_no_other_log(store: PostgresStore, other: Any) -> None:
    """Lines and progress of the other runs are written; those of the locked one are refused and may be sent again."""
    locked, free = await two_runs(store)
    batches = [LogBatch(run.id, run.run_id, [line(run, 1)]) for run in (locked, free)]
    async with other.transaction():
        await other.fetch(LOCK, [locked.id])
        assert await store.log_append_if_leased(batches) == {free.run_id}
        assert not await store.progress_set_if_leased(locked.id, locked.run_id, 0.5, None)
    assert await store.log_append_if_leased(batches) == {locked.run_id, free.run_id}
    assert len(await log_of(store, locked)) == len(await log_of(store, free)) == 1


async def test_log_lines_on_their_way_hold_up_no_heartbeat_and_no_completion(
    store: PostgresStore, other: Any, clock: ManualClock
) -> None:
    """They only keep away what would take the job from the run."""
    run = await start(store)
    async with other.transaction():
        lines = '[[1, "info", "hello", null, null, null, 0]]'
        await other.fetchval("SELECT holdfast.log_append_v2($1, $2, $3, NULL)", [run.id], [run.run_id], [lines])
        (held,) = await store.lease_extend_if_held(beats([run]))
        assert held.extended
        clock.advance(LEASE + 1)
        assert await reap(store) == []
        assert await store.job_leave_if_leased([Departure(id=run.id, run_id=run.run_id, how=Leaving.FAIL)]) == {}
        assert await store.job_complete_if_leased([Completion(run.id, run.run_id, "1")]) == {run.run_id}


@pytest.mark.parametrize("done", [False, True])
async def test_the_last_try_of_a_finisher_waits_for_a_row_that_is_locked_for_a_moment(
    store: PostgresStore, other: Any, done: bool
) -> None:
    """Its worker leaves: no later try would come, and the job would stay running until its lease ends."""
    run = await start(store)
    settled: dict[str, bool] = {}
    finisher = Finisher(store, settled.__setitem__)
    async with other.transaction():
        await other.fetch(LOCK, [run.id])
        if done:
            finisher.complete(Completion(run.id, run.run_id, "1"))
        else:
            finisher.leave(release_of(run))
        writing = asyncio.ensure_future(finisher.write_now())
        await until(lambda: finisher._locked)
    assert await writing
    assert settled == {run.run_id: True}
    assert await state_of(store, run.id) is (State.COMPLETED if done else State.QUEUED)


@pytest.mark.case("L33")
@pytest.mark.parametrize("talks", [False, True])
async def test_a_worker_writes_the_end_of_a_locked_job_once_it_is_free(postgres_url: str, other: Any, talks: bool) -> None:
    """Its neighbours end meanwhile, and each job runs once."""
    hf = Holdfast(postgres_url)
    runs: list[str] = []
    locked = asyncio.Event()

    @hf.task
    async def work(name: str) -> str:
        runs.append(name)
        if name == "locked":
            await locked.wait()
            if talks:
                current().log.info("under the lock")
        return name

    held = await work.enqueue("locked")
    async with working(hf, concurrency=2):
        await until(lambda: "locked" in runs)
        async with other.transaction():
            await other.fetch(LOCK, [held.id])
            locked.set()
            for _ in range(3):
                assert (await ends(hf, await work.enqueue("free"))).state is State.COMPLETED
            assert (await hf.get(held.id)).state is State.RUNNING
        assert (await ends(hf, held)).state is State.COMPLETED
    assert sorted(runs) == ["free", "free", "free", "locked"]
    (run,) = await hf.runs(held.id)
    assert [line.message for line in await hf.logs(run.run_id)] == ["under the lock"] * talks
    assert [line.message for line in await hf.logs(held.id)] if False else True
    await hf.aclose()


# -- check, then write -------------------------------------------------------------------------------------------------------


async def test_a_step_is_not_stored_behind_a_reaper(store: PostgresStore, other: Any, clock: ManualClock) -> None:
    """The reaper has taken the job away and is about to commit: the run is told that it has lost its lease."""
    run = await start(store)
    clock.advance(LEASE + 1)
    async with other.transaction():
        assert await other.fetch("SELECT * FROM holdfast.reap(now => $1)", clock.now())
        saving = asyncio.ensure_future(store.step_save_if_leased(run.id, run.run_id, "fetch", "f", '"late"'))
        async with _beside(store) as watching:
            await one_waits(watching)
    assert await saving is None
    assert await store.step_get(run.id, "fetch", "f") is None


async def test_a_departure_sees_a_cancel_that_was_just_committed(store: PostgresStore, other: Any) -> None:
    """The row is locked before it is decided what becomes of the job: a wish to cancel is never overwritten."""
    run = await start(store, max_attempts=5)
    retry = Departure(id=run.id, run_id=run.run_id, how=Leaving.RETRY)
    async with other.transaction():
        assert await other.fetchval("SELECT holdfast.job_cancel_v1($1, 'ana', NULL)", run.id) == "cancelling"
        leaving = asyncio.ensure_future(other_departure(store, retry))
        async with _beside(store) as watching:
            await one_waits(watching)
    assert await leaving == "cancelled"
    assert await state_of(store, run.id) is State.CANCELLED


async def other_departure(store: PostgresStore, departure: Departure) -> str:
    """By job_leave_v1, which waits for the row and which job_leave_v2 calls for all rows that are free."""
    async with store.transaction() as tx:
        (row,) = await tx.fetch(
            "SELECT state FROM holdfast.job_leave_v1(CAST($1 AS jsonb), NULL)", msgspec.json.encode([departure]).decode()
        )
        return str(row["state"])


async def test_an_end_is_announced_by_one_of_two_that_see_it(store: PostgresStore) -> None:
    """The second one waits for the row, looks again and finds it taken."""
    job = new_job(tenant="acme", announced=-1)
    await store.job_insert_many([job])
    (run,) = (await claim(store)).jobs
    await store.job_complete_if_leased([Completion(run.id, run.run_id, "1")])

    async def take() -> list[dict[str, Any]]:
        async with store.transaction() as tx:
            return await tx.shared("announce_take", 10)

    async with store.transaction() as tx:
        assert [row["id"] for row in await tx.shared("announce_take", 10)] == [job.id]
        taking = asyncio.ensure_future(take())
        async with _beside(store) as watching:
            await one_waits(watching)
    assert await taking == []


def _beside(store: PostgresStore) -> Any:
    """A connection of the store's own, to look on with."""
    return store._connections.acquire()


@pytest.mark.parametrize("ends_first", [True, False])
async def test_only_a_run_that_goes_on_is_asked_for_again_at_once(postgres_url: str, other: Any, ends_first: bool) -> None:
    """A busy worker always has runs whose rows its own completions have locked: it would beat every second for them."""
    hf = Holdfast(postgres_url)
    go = asyncio.Event()

    @hf.task
    async def work() -> None:
        await go.wait()

    job, worker = await work.enqueue(), hf.worker()
    working = asyncio.ensure_future(worker.run())
    await until(lambda: worker.running)
    (attempt,) = worker.running.values()
    async with other.transaction():
        await other.fetch(LOCK, [job.id])
        if ends_first:
            go.set()
            await until(lambda: attempt.ended)
        assert await worker._heart._beat() is ends_first
    go.set()
    await ends(hf, job)
    worker.stop()
    await working
    await hf.aclose()
