"""A worker whose session has ended and that has missed two heartbeats is dead; each sign alone proves nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from holdfast.clock import ManualClock
from holdfast.job import State
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.protocol import WorkerRow
from tests.conformance.scene import claim, insert, reap, state_of
from tests.conformance.test_workers import a_worker
from tests.support.pgbouncer import PgBouncer
from tests.support.waiting import until

HEARTBEAT = 15.0
DEAD_AFTER = 2.25 * HEARTBEAT + 2
"""Seconds since a worker's last report."""
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND mode = 'ShareLock'"
END_LISTENERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'holdfast listener'
"""


@pytest.fixture
async def observer(postgres_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=clock)
    yield store
    await store.close()


@pytest.fixture
async def victim(postgres_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, clock=clock)
    yield store
    await store.close()


def a_row(worker_id: str) -> WorkerRow:
    return a_worker(worker_id, heartbeat=HEARTBEAT)


class Scene:
    """A worker with a job, and another one that watches it without knowing."""

    def __init__(self, observer: PostgresStore, victim: PostgresStore, url: str, clock: ManualClock) -> None:
        self.observer, self.victim, self.clock = observer, victim, clock
        self._url = url
        self._stop: Callable[[], Awaitable[None]]

    async def begin(self) -> None:
        self._stop = await self.victim.listen(lambda _: None, worker="victim")
        await self.victim.worker_save(a_row("victim"))
        await self.observer.worker_save(a_row("observer"))
        await insert(self.observer, backoff=[60.0])
        (self.run,) = (await claim(self.victim, worker="victim")).jobs

    async def die(self) -> None:
        """As the kernel does it: the connection is closed."""
        await self._stop()
        await until(lambda: self.sessions() == 0)

    def sessions(self) -> int:
        with psycopg.connect(self._url) as connection:
            return int((connection.execute(LOCKS).fetchone() or [0])[0])

    def end_listeners(self) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(END_LISTENERS)

    async def observed_for(self, seconds: float) -> float | None:
        """The observer's heartbeats go on; what the last one was answered."""
        answer = None
        while seconds > 0:
            self.clock.advance(min(HEARTBEAT, seconds))
            seconds -= HEARTBEAT
            answer = await self.observer.worker_seen(a_row("observer"))
        return answer

    async def state(self) -> State:
        return await state_of(self.observer, self.run.id)


@pytest.fixture
async def scene(observer: PostgresStore, victim: PostgresStore, postgres_url: str, clock: ManualClock) -> Scene:
    made = Scene(observer, victim, postgres_url, clock)
    await made.begin()
    return made


@pytest.mark.case("recovery-9")
async def test_a_worker_that_has_missed_two_heartbeats_without_a_session_is_dead(scene: Scene) -> None:
    """Its job is queued again long before the lease ends, and the worker is forgotten."""
    await scene.die()
    await scene.observed_for(DEAD_AFTER)
    (reaped,) = await reap(scene.observer)
    assert (reaped.id, reaped.reason, reaped.locked_by) == (scene.run.id, "worker_died", "victim")
    await reap(scene.observer)
    assert [worker.id for worker in await scene.observer.worker_list()] == ["observer"]


async def test_a_heartbeat_of_another_worker_answers_when_to_look(scene: Scene) -> None:
    """Not before a heartbeat was missed; then in how many seconds the worker is taken for dead."""
    await scene.die()
    assert await scene.observed_for(HEARTBEAT) is None
    assert await scene.observed_for(5) == pytest.approx(DEAD_AFTER - HEARTBEAT - 5)
    assert await reap(scene.observer) == []
    assert await scene.observed_for(DEAD_AFTER - HEARTBEAT - 5) == pytest.approx(0)
    assert len(await reap(scene.observer)) == 1
    await reap(scene.observer)
    assert await scene.observed_for(HEARTBEAT) is None


@pytest.mark.case("recovery-10")
async def test_a_frozen_worker_keeps_its_lease_while_its_session_is_open(scene: Scene) -> None:
    """It may thaw: however many heartbeats it missed, the lease decides."""
    assert await scene.observed_for(6 * HEARTBEAT) is None
    assert await reap(scene.observer) == []
    assert await scene.state() is State.RUNNING


@pytest.mark.case("recovery-10")
async def test_a_worker_without_its_session_that_reports_keeps_its_jobs(scene: Scene) -> None:
    """Its listener was terminated and cannot come back, and its heartbeats do arrive."""
    scene.victim._connections.listen_url = "postgresql://127.0.0.1:1/nowhere"
    scene.end_listeners()
    await until(lambda: scene.sessions() == 0)
    for _ in range(6):
        await scene.victim.worker_seen(a_row("victim"))
        await scene.observed_for(HEARTBEAT)
    assert await reap(scene.observer) == []
    assert await scene.state() is State.RUNNING


@pytest.mark.case("recovery-10")
async def test_a_listener_that_was_terminated_takes_its_session_again(scene: Scene) -> None:
    """An administrator ended the connection; once it is back, missed heartbeats alone prove nothing again."""
    scene.end_listeners()
    await until(lambda: scene.sessions() == 0)
    await until(lambda: scene.sessions() == 1)
    await scene.observed_for(6 * HEARTBEAT)
    assert await reap(scene.observer) == []
    assert await scene.state() is State.RUNNING


@pytest.mark.case("recovery-10")
async def test_after_an_outage_each_worker_has_the_time_to_report(scene: Scene) -> None:
    """The database was away, sessions ended and all workers went silent: the first one back rescues nothing from the others."""
    await scene.die()
    scene.clock.advance(10 * HEARTBEAT)
    assert await reap(scene.observer) == []
    await scene.observer.worker_seen(a_row("observer"))
    assert await reap(scene.observer) == []
    assert await scene.observed_for(1) == pytest.approx(HEARTBEAT - 1)
    await scene.victim.worker_seen(a_row("victim"))
    await scene.observed_for(HEARTBEAT)
    assert await reap(scene.observer) == []
    assert await scene.state() is State.RUNNING


@pytest.mark.case("recovery-10")
@pytest.mark.parametrize("away", [0.8, 1.0, 1.1, 1.2, 1.25, 1.3, 2.0])
async def test_an_outage_about_as_long_as_a_heartbeat_proves_no_death(scene: Scene, away: float) -> None:
    """The observer reported just before it and notices nothing; the victim was due just when it began."""
    scene.clock.advance(HEARTBEAT - 0.5)
    await scene.observer.worker_seen(a_row("observer"))
    await scene.die()
    scene.clock.advance(away * HEARTBEAT)
    await scene.observer.worker_seen(a_row("observer"))
    scene.clock.advance(1.0)
    assert await reap(scene.observer) == []
    await scene.victim.worker_seen(a_row("victim"))
    assert await scene.observed_for(1) is None
    assert await scene.state() is State.RUNNING


@pytest.mark.case("recovery-10")
async def test_a_worker_of_the_release_before_is_judged_by_its_lease(scene: Scene) -> None:
    """Its row says nothing of a session or a heartbeat."""
    async with scene.observer.transaction() as tx:
        await tx.execute(
            "UPDATE holdfast.workers SET has_session = false, heartbeat = NULL, steady_since = NULL WHERE id = 'victim'"
        )
    await scene.die()
    assert await scene.observed_for(6 * HEARTBEAT) is None
    assert await reap(scene.observer) == []


@pytest.mark.case("recovery-10", "I28")
async def test_behind_a_pooler_a_session_proves_nothing(postgres_url: str, clock: ManualClock) -> None:
    """The server's connection outlives its client there, or ends without it: none is held, and the lease decides."""
    bouncer = PgBouncer(postgres_url)
    observer, pooled = PostgresStore(postgres_url, clock=clock), PostgresStore(bouncer.url_of(postgres_url), clock=clock)
    try:
        scene = Scene(observer, pooled, postgres_url, clock)
        await scene.begin()
        assert scene.sessions() == 0
        await scene.die()
        assert await scene.observed_for(6 * HEARTBEAT) is None
        assert await reap(observer) == []
        assert await scene.state() is State.RUNNING
    finally:
        await pooled.close()
        await observer.close()
        bouncer.remove()
