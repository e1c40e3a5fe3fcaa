"""Ordering keys under many hands: whatever happens at once, no lane is left with nobody to go on."""

from __future__ import annotations

import asyncio
import contextlib
import random

import psycopg
import pytest

from holdfast.errors import JobConflict
from holdfast.store.protocol import Claimed, Completion, Leaving, Store, Transaction
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import claim, claimed_ids, complete, insert, insert_some, leave, new_job, start, state_of, table
from tests.conftest import open_store
from tests.support.waiting import until

LANES = 12
JOBS_PER_LANE = 8


class Watch:
    """Follows which lanes run, and in what order their jobs were begun."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.begun: dict[str, list[str]] = {}

    def begins(self, run: Claimed) -> None:
        lane = str(run.order_key)
        assert lane not in self.running, f"two jobs of lane {lane} run at once"
        self.running.add(lane)
        begun = self.begun.setdefault(lane, [])
        if not begun or begun[-1] != run.id:
            begun.append(run.id)

    def ends(self, run: Claimed) -> None:
        self.running.discard(str(run.order_key))


async def finish_somehow(store: Store, run: Claimed, dice: random.Random) -> None:
    act = dice.choice(["complete", "complete", "complete", "retry", "snooze", "release", "fail", "cancel"])
    if act == "complete":
        await complete(store, run)
        return
    if act == "cancel":
        await store.job_cancel(run.id, "dice")
    await leave(store, run, Leaving(act))


async def work_until_done(store: Store, watch: Watch, dice: random.Random) -> None:
    """Never moves on by itself once the lanes are stuck: the time-out around it then fails the test."""
    while True:
        runs = (await claim(store, dice.randint(1, 4))).jobs
        for run in runs:
            watch.begins(run)
        for run in runs:
            watch.ends(run)
            await finish_somehow(store, run, dice)
        if not runs:
            counts = await store.job_counts()
            if counts["queued"] + counts["running"] == 0:
                return


@pytest.mark.case("L21")
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_lanes_under_many_hands_are_never_stuck(store: Store, open_another: OpenAnother, seed: int) -> None:
    """Sixteen workers claim, finish, retry, snooze, release, fail and cancel: every lane runs in order to its end."""
    lanes: dict[str, list[str]] = {f"lane-{lane}": [] for lane in range(LANES)}
    for _ in range(JOBS_PER_LANE):
        jobs = [new_job(order_key=lane, max_attempts=1000) for lane in lanes]
        for job in await store.job_insert_many(jobs):
            lanes[str((await store.job_get(job.id)).order_key)].append(job.id)
    stores = [store, open_another()]
    watch = Watch()
    async with asyncio.timeout(90), asyncio.TaskGroup() as workers:
        for number in range(16):
            workers.create_task(work_until_done(stores[number % 2], watch, random.Random(seed * 100 + number)))
    assert lanes == watch.begun
    assert all([(await state_of(store, job_id)).ended for ids in lanes.values() for job_id in ids])


async def test_lanes_finished_in_batches_are_never_stuck(store: Store) -> None:
    """Completions of many lanes in one statement, against claims that park what waits in the same lanes."""
    await store.job_insert_many([new_job(order_key=f"lane-{n % 10}") for n in range(200)])

    async def work() -> int:
        done = 0
        while True:
            runs = (await claim(store, 10)).jobs
            accepted = await store.job_complete_if_leased([Completion(run.id, run.run_id, None, True) for run in runs])
            late = [await complete(store, run) for run in runs if run.run_id not in accepted]
            done += len(accepted) + sum(late)
            if not runs and not any(map((await store.job_counts()).get, ("queued", "running"))):
                return done

    async with asyncio.timeout(90):
        assert sum(await asyncio.gather(*(work() for _ in range(8)))) == 200


async def test_lanes_from_which_people_cancel_are_never_stuck(store: Store, open_another: OpenAnother) -> None:
    """While workers complete, every third job is cancelled wherever it is: what is left runs to its end."""
    ids = [job.id for job in await store.job_insert_many([new_job(order_key=f"lane-{n % 6}") for n in range(150)])]
    other = open_another()

    async def cancel_some() -> None:
        for job_id in ids[::3]:
            with contextlib.suppress(JobConflict):
                await other.job_cancel(job_id, "ana")

    async def work() -> None:
        while True:
            runs = (await claim(store, 3)).jobs
            for run in runs:
                await complete(store, run)
            if not runs and not any(map((await store.job_counts()).get, ("queued", "running"))):
                return

    async with asyncio.timeout(90):
        await asyncio.gather(cancel_some(), *(work() for _ in range(6)))
    counts = await store.job_counts()
    assert counts["completed"] + counts["cancelled"] == 150
    assert counts["cancelled"] <= 50


# -- locked rows ------------------------------------------------------------------------------------------------------


async def lock_row(store: Store, tx: Transaction, job_id: str) -> None:
    """As a claim does in passing, or a caller's own transaction. On SQLite any write locks the whole file."""
    if store.name == "postgres":
        await tx.fetch(f"SELECT 1 FROM {table(store, 'jobs')} WHERE id = CAST($1 AS uuid) FOR UPDATE", job_id)
    else:
        await tx.execute(f"UPDATE {table(store, 'jobs')} SET stage = stage WHERE id = $1", job_id)


async def test_the_next_one_is_not_passed_over_because_its_row_is_locked(
    store: Store, open_another: OpenAnother, database_url: str
) -> None:
    """Whoever finishes waits a moment for that row: to skip it would leave the key without anybody to go on."""
    run = await start(store, order_key="k")
    second = (await insert_some(store, 2, order_key="k"))[0]
    assert (await claim(store, 10)).jobs == []
    if store.name == "postgres":
        letting_go = asyncio.ensure_future(asyncio.to_thread(lock_until_somebody_waits, database_url, second))
        await until(lambda: sleeps_with_the_lock(database_url))
        assert await complete(store, run)
        await letting_go
    else:
        async with open_another().transaction() as tx:
            await lock_row(store, tx, second)
            completing = asyncio.ensure_future(complete(store, run))
            await asyncio.wait({completing}, timeout=0.05)
        assert await completing
    assert [second] == await claimed_ids(store, 10)


LOCK = """
DO $$ BEGIN
    PERFORM 1 FROM holdfast.jobs WHERE id = '{}' FOR UPDATE;
    WHILE NOT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted) LOOP PERFORM pg_sleep(0.001); END LOOP;
END $$
"""


def lock_until_somebody_waits(url: str, job_id: str) -> None:
    """In one statement: the server itself lets go at once, however busy the machine is, and the wait has a limit."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(LOCK.format(job_id).encode())


def sleeps_with_the_lock(url: str) -> bool:
    with psycopg.connect(url) as connection:
        sleeping = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        return connection.execute(sleeping).fetchone() is not None


async def test_a_finish_is_not_held_up_by_somebodys_long_transaction(postgres_url: str) -> None:
    """On PostgreSQL, where others lock rows: it gives up after a moment, and healing lets the next one go later."""
    store, other = open_store("postgres", postgres_url), open_store("postgres", postgres_url)
    run = await start(store, order_key="k")
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    async with other.transaction() as tx:
        await lock_row(store, tx, second.id)
        assert await asyncio.wait_for(complete(store, run), 40)
    assert (await claim(store, 10)).jobs == []
    assert await store.order_heal() == 1
    assert [second.id] == await claimed_ids(store, 10)
    await store.close()
    await other.close()
