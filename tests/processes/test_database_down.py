"""A PostgreSQL that is stopped, crashes or cuts connections while jobs are enqueued, run and finished."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import psycopg
import pytest

from holdfast.errors import StorageUnavailable
from tests.conformance.scene import start
from tests.processes.scene import APP, Scene
from tests.support.postgres import OwnServer
from tests.support.processes import Processes
from tests.support.waiting import until

GIVES_UP_SOON = """
import sys
from holdfast.cli import main
from holdfast.processes import claimer
claimer.DATABASE_AWAY_SECONDS = 0.5
sys.exit(main())
"""
"""A worker process for which half a second without a database is what a minute is for others."""


class Client:
    """Enqueues one job after another through everything that happens, and remembers which were acknowledged."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.acknowledged: list[str] = []
        self.refused = 0

    async def enqueue_until(self, enough: asyncio.Event) -> None:
        rng = random.Random(0)
        while not enough.is_set():
            spec = self._scene.tasks.work.job(self._scene.folder, rng.uniform(0, 0.03))
            await until(lambda spec=spec: self._acknowledged(spec), 60)

    async def _acknowledged(self, spec: Any) -> bool:
        try:
            (job,) = await self._scene.hf.enqueue_many([spec])
        except StorageUnavailable:
            self.refused += 1
            return False
        self.acknowledged.append(job.id)
        return True


@pytest.mark.case("I25")
@pytest.mark.usefixtures("short_lease")
async def test_a_crash_of_the_database_under_load_loses_and_doubles_nothing(
    stoppable_scene: Scene, own_postgres: OwnServer
) -> None:
    """Every job that the client was told about is there after the crash and completes, each by one run."""
    scene, client, enough = stoppable_scene, Client(stoppable_scene), asyncio.Event()
    for _ in range(2):
        scene.worker()
    load = asyncio.create_task(client.enqueue_until(enough))
    await until(lambda: len(scene.marks("done")) > 100, 60)
    await asyncio.to_thread(own_postgres.stop, "immediate")
    await until(lambda: client.refused)
    before = len(client.acknowledged)
    await asyncio.to_thread(own_postgres.start)
    await until(lambda: len(client.acknowledged) > before + 100, 60)
    enough.set()
    await load
    await scene.all_ended()
    await scene.assert_all_done_once(client.acknowledged)


@pytest.mark.case("I26")
@pytest.mark.usefixtures("short_lease")
async def test_connections_cut_at_random_under_load_lose_and_double_nothing(postgres_scene: Scene) -> None:
    """Workers and client lose their connections again and again; every acknowledged job completes, by one run."""
    scene, client, enough = postgres_scene, Client(postgres_scene), asyncio.Event()
    for _ in range(2):
        scene.worker()
    load = asyncio.create_task(client.enqueue_until(enough))
    with psycopg.connect(scene.url, autocommit=True) as admin:
        for step in range(1, 31):
            await until(lambda step=step: len(scene.marks("done")) >= 10 * step, 60)
            cut_one_connection(admin)
    enough.set()
    await load
    await scene.all_ended()
    await scene.assert_all_done_once(client.acknowledged)


def cut_one_connection(admin: psycopg.Connection) -> None:
    admin.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1"""
    )


@pytest.mark.case("I16")
async def test_a_worker_waits_for_a_database_that_is_away_and_claims_when_it_is_back(
    stoppable_scene: Scene, own_postgres: OwnServer
) -> None:
    """It says so, tries again, and serves as soon as it can."""
    due_soon = await stoppable_scene.tasks.tell_pid.options(delay=1).enqueue()
    worker = stoppable_scene.worker()
    await worker.registered(stoppable_scene.hf.store)
    own_postgres.stop()
    await worker.printed("No database to claim from, trying again")
    own_postgres.start()
    await stoppable_scene.all_ended()
    assert await due_soon.result(timeout=0) == worker.pid


@pytest.mark.case("I16")
async def test_an_idle_exit_worker_leaves_when_the_database_stays_away(
    stoppable_scene: Scene, own_postgres: OwnServer, processes: Processes
) -> None:
    """Its exit code says why, and the job is still queued for whoever comes when the database is back."""
    job = await stoppable_scene.tasks.tell_pid.enqueue()
    own_postgres.stop()
    leaving = processes.python("-c", GIVES_UP_SOON, "--app", APP, "worker", "--exit-when-idle", "60")
    assert await leaving.exited(40) == 5, leaving.output
    own_postgres.start()
    await until(lambda: is_reachable(stoppable_scene))
    now = await stoppable_scene.hf.get(job.id)
    assert (now.status, now.attempt) == ("queued", 0)
    next_one = stoppable_scene.worker()
    assert await job.result(timeout=60) == next_one.pid


@pytest.mark.case("I18")
async def test_an_outcome_waits_for_a_database_that_is_away(stoppable_scene: Scene, own_postgres: OwnServer) -> None:
    """A job that ends while the database is down is completed once it is back, in the same run."""
    job = await stoppable_scene.tasks.hold.enqueue(stoppable_scene.folder)
    worker = stoppable_scene.worker()
    await stoppable_scene.started(job)
    own_postgres.stop("immediate")
    stoppable_scene.let_go(job)
    await worker.printed("Outcomes of 1 runs wait for the database")
    own_postgres.start()
    await stoppable_scene.all_ended()
    assert await stoppable_scene.completing_runs() == {job.id: job.run_id}


@pytest.mark.case("I18")
@pytest.mark.usefixtures("short_lease")
async def test_a_job_whose_worker_died_with_the_database_runs_again(stoppable_scene: Scene, own_postgres: OwnServer) -> None:
    """Its outcome was never written, so it counts as not done: the next worker runs it after the lease."""
    job = await stoppable_scene.tasks.hold.enqueue(stoppable_scene.folder)
    worker = stoppable_scene.worker()
    await stoppable_scene.started(job)
    own_postgres.stop("immediate")
    stoppable_scene.let_go(job)
    await worker.printed("Outcomes of 1 runs wait for the database")
    worker.kill()
    own_postgres.start()
    await until(lambda: is_reachable(stoppable_scene))
    stoppable_scene.worker()
    second = await stoppable_scene.started(job, run_no=2)
    stoppable_scene.let_go(job, run_no=2)
    assert await job.result(timeout=60) == second.run_id
    assert await stoppable_scene.completing_runs() == {job.id: second.run_id}


async def is_reachable(scene: Scene) -> bool:
    try:
        await scene.hf.store.schema_version()
    except StorageUnavailable:
        return False
    return True


async def test_a_server_that_was_down_lets_those_who_live_report_before_anybody_reaps(
    stoppable_scene: Scene, own_postgres: OwnServer
) -> None:
    """Also by SQL, where pg_cron does it: a run has the length of its lease for that, counted from the start of the server."""
    store = stoppable_scene.hf.store
    slow, quick = await start(store, lease_seconds=3600.0), await start(store, lease_seconds=0.001)
    with psycopg.connect(own_postgres.url, autocommit=True) as admin:
        admin.execute("UPDATE holdfast.jobs SET lease_expires_at = clock_timestamp() - interval '1 second'")
    own_postgres.stop()
    own_postgres.start()
    with psycopg.connect(own_postgres.url, autocommit=True) as admin:
        assert [str(row[0]) for row in admin.execute("SELECT id FROM holdfast.reap()")] == [quick.id]
        admin.execute("UPDATE holdfast.jobs SET lease_seconds = 0.001 WHERE id = %s", [slow.id])
        assert [str(row[0]) for row in admin.execute("SELECT id FROM holdfast.reap()")] == [slow.id]
