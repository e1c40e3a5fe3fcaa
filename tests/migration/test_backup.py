"""A restored backup: running jobs come back by their leases, what was done later is forgotten, schedules fire for no past."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from holdfast.processes.scheduler import Scheduler
from holdfast.store.protocol import Completion
from tests.conformance.scene import claim, reap
from tests.support.postgres import Databases

LEASE = 60.0
DAY = 86_400.0


@pytest.fixture
def back_up(store_kind: str, database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Copies the database as it is now; the address of the copy. SQLite's own backup, and a template of PostgreSQL."""
    if store_kind == "sqlite":

        def copied() -> str:
            with (
                sqlite3.connect(database_url.removeprefix("sqlite:///")) as here,
                sqlite3.connect(tmp_path / "copy.db") as there,
            ):
                here.backup(there)
            here.close()
            there.close()
            return f"sqlite:///{tmp_path / 'copy.db'}"

        yield copied
        return
    databases: Databases = request.getfixturevalue("postgres_databases")
    name = urlsplit(database_url).path.lstrip("/")
    copy = f"{name}_copy"
    with psycopg.connect(databases.admin_url, autocommit=True) as admin:

        def templated() -> str:
            # A template takes no connections: those of the application are cut, as a restore would find it anyway.
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                [name],
            )
            admin.execute(f"CREATE DATABASE {copy} TEMPLATE {name}".encode())
            return database_url.replace(f"/{name}", f"/{copy}")

        yield templated
        admin.execute(f"DROP DATABASE IF EXISTS {copy} WITH (FORCE)".encode())


@pytest.fixture
async def opened(clock: ManualClock) -> AsyncIterator[Callable[[str], Holdfast]]:
    apps: list[Holdfast] = []

    def open_one(url: str) -> Holdfast:
        apps.append(Holdfast(url, clock=clock, lease=LEASE))

        @apps[-1].task(queue="mail")
        async def send(number: int) -> int:
            return number

        return apps[-1]

    yield open_one
    for app in apps:
        await app.aclose()


async def test_a_restored_backup_takes_up_the_work_where_it_was(
    database_url: str, back_up: Callable[[], str], opened: Callable[[str], Holdfast], clock: ManualClock
) -> None:
    """Backed up in the middle of work, restored a day later: what ran then is run again after its lease, what waited is done,
    what had ended stays ended, and a worker of before the disaster can write nothing."""
    before = opened(database_url)
    send = before.tasks["send"]
    done, running, waiting = [await send.enqueue(number) for number in range(3)]
    first, second = (await claim(before.store, 2, tasks=["send"])).jobs
    assert [first.id, second.id] == [done.id, running.id]
    await before.store.job_complete_if_leased([Completion(first.id, first.run_id, "0", False)])
    copy = back_up()
    await before.aclose()

    clock.advance(DAY)
    after = opened(copy)
    assert [lost.id for lost in await reap(after.store)] == [running.id]
    late = Completion(second.id, second.run_id, "666", False)
    assert await after.store.job_complete_if_leased([late]) == set()
    clock.advance(DAY)
    await after.run_worker(queues=["mail"], exit_when_idle=0.0)
    jobs = [await after.get(job.id) for job in (done, running, waiting)]
    assert [job.state for job in jobs] == [State.COMPLETED] * 3
    assert [(await job.result(), job.attempt) for job in jobs] == [(0, 1), (1, 2), (2, 1)]


async def test_schedules_of_a_restored_backup_do_not_fire_for_the_past(
    database_url: str, back_up: Callable[[], str], opened: Callable[[str], Holdfast], clock: ManualClock
) -> None:
    """A day of ticks has passed since the backup: none of them makes a job, and the next one does."""
    before = opened(database_url)
    await before.schedules.set("hourly", "send", 3600, args={"number": 1})
    copy = back_up()
    await before.aclose()
    clock.advance(DAY + 600)
    after = opened(copy)
    await Scheduler(after).one_pass()
    assert await after.jobs() == []
    clock.advance(3000)  # the moment of the next tick
    await Scheduler(after).one_pass()
    assert len(await after.jobs()) == 1
