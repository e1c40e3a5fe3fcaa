"""A campaign against a crowd of workers: kills, freezes, cut connections and server crashes, while jobs of all kinds run.

`python tools/chaos.py --minutes 5 --store both --seed 7`. In rounds of half a minute, each on a new database; at the end of a
round everything is let run to its end and every promise is checked. The seed decides about jobs and troubles, but not about
the moment at which a process meets them: run a seed that failed more than once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import psycopg  # noqa: E402
import pytest  # noqa: E402

from holdfast.errors import JobConflict, StorageUnavailable  # noqa: E402
from holdfast.task import JobSpec  # noqa: E402
from tests.processes import audit  # noqa: E402
from tests.processes.scene import Scene, fresh_tasks  # noqa: E402
from tests.processes.verdict import verdict  # noqa: E402
from tests.support.postgres import OwnServer  # noqa: E402
from tests.support.processes import Process, Processes  # noqa: E402

ROUND_SECONDS = 30.0
SETTLE_SECONDS = 90.0
STOP_SECONDS = 30.0
WORKERS = 3
CLIENTS = 2
WRONGS_SHOWN_MAX = 20
IMPATIENT = {
    "HOLDFAST_DEFAULT_LEASE_SEC": "1",
    "HOLDFAST_HEARTBEAT_SEC": "0.25",
    "HOLDFAST_REAPER_INTERVAL_SEC": "0.25",
    "HOLDFAST_GRACE_SEC": "0.2",
}
TASKS_BY_WEIGHT = {
    "work": 60,
    "work_until_cancelled": 20,
    "work_at_third_attempt": 10,
    "work_in_thread": 10,
    "always_fail": 5,
    "work_isolated": 1,
}


class Client:
    """Enqueues and cancels through everything that happens, and remembers what it was told."""

    def __init__(self, name: str, scene: Scene, rng: random.Random) -> None:
        self._name = name
        self._scene = scene
        self._rng = rng
        self.acknowledged: list[str] = []
        self.refused = 0

    async def run_until(self, end: float) -> None:
        while time.monotonic() < end:
            try:
                jobs = await self._scene.hf.enqueue_many([self._some_job() for _ in range(self._rng.randint(1, 10))])
                self.acknowledged += [job.id for job in jobs]
                if self._rng.random() < 0.3:
                    await self._cancel_one()
            except StorageUnavailable:
                self.refused += 1
            await asyncio.sleep(self._rng.uniform(0, 0.2))

    def _some_job(self) -> JobSpec[Any]:
        rng, options = self._rng, dict[str, Any]()
        if rng.random() < 0.2:
            options["order"] = f"{self._name}:{rng.randrange(5)}"
        if rng.random() < 0.1:
            options["unique"] = f"key {rng.randrange(20)}"
        if rng.random() < 0.1:
            options["delay"] = rng.uniform(0, 2)
        if rng.random() < 0.2:
            options["priority"] = rng.randint(-5, 5)
        (name,) = rng.choices(list(TASKS_BY_WEIGHT), list(TASKS_BY_WEIGHT.values()))
        job: JobSpec[Any] = getattr(self._scene.tasks, name).options(**options).job(self._scene.folder, rng.uniform(0, 0.1))
        return job

    async def _cancel_one(self) -> None:
        with contextlib.suppress(JobConflict):
            await self._scene.hf.cancel(self._rng.choice(self.acknowledged[-50:]), by=self._name)


class Troubles:
    """One trouble after another."""

    def __init__(self, scene: Scene, rng: random.Random, server: OwnServer | None) -> None:
        self._scene = scene
        self._rng = rng
        self._server = server
        self._workers = [self._new_worker() for _ in range(WORKERS)]
        self.met: Counter[str] = Counter()
        self.wrongs: list[str] = []

    async def run_until(self, end: float) -> None:
        choices: list[Callable[[], Awaitable[None]]] = [self._kill, self._kill, self._freeze, self._replace]
        if self._server is not None:
            choices += [self._cut_connections, self._cut_connections, self._crash_server]
        else:
            choices += [self._hold_write_lock]
        while time.monotonic() < end:
            await asyncio.sleep(self._rng.uniform(0.1, 1.5))
            trouble = self._rng.choice(choices)
            self.met[trouble.__name__.strip("_")] += 1
            await trouble()

    def _new_worker(self) -> Process:
        return self._scene.worker("--concurrency", str(self._rng.choice([1, 4, 10])))

    async def _kill(self) -> None:
        victim = self._rng.randrange(WORKERS)
        self._workers[victim].kill()
        self._workers[victim] = self._new_worker()

    async def _freeze(self) -> None:
        """At any moment, also in the middle of a transaction; often for longer than a lease, and while other troubles come."""
        victim = self._rng.choice(self._workers)
        victim.freeze()
        asyncio.get_running_loop().call_later(self._rng.uniform(0.1, 3), victim.thaw)

    async def _replace(self) -> None:
        """As a deploy does."""
        victim = self._rng.randrange(WORKERS)
        leaving = self._workers[victim]
        await leaving.printed("Worker ", STOP_SECONDS)  # before that a signal simply ends it
        leaving.terminate()
        code = await leaving.exited(STOP_SECONDS)
        if code != 0:
            self.wrongs.append(f"a worker ended with {code} after SIGTERM; it printed:\n{leaving.output[-5000:]}")
        self._workers[victim] = self._new_worker()

    async def _hold_write_lock(self) -> None:
        """As an application does that shares the file and forgets a transaction; sometimes for longer than anybody waits."""
        connection = sqlite3.connect(
            self._scene.url.removeprefix("sqlite:///"), timeout=60, isolation_level=None, check_same_thread=False
        )
        await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
        await asyncio.sleep(self._rng.choice([0.1, 0.5, 1, 2, 3, 12]))
        connection.close()

    async def _cut_connections(self) -> None:
        with psycopg.connect(self._scene.url, autocommit=True) as admin:
            admin.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT %s""",
                [self._rng.choice([1, 1, 2, 1000])],
            )

    async def _crash_server(self) -> None:
        assert self._server is not None
        await asyncio.to_thread(self._server.stop, self._rng.choice(["immediate", "immediate", "fast"]))
        await asyncio.sleep(self._rng.uniform(0, 2))
        await asyncio.to_thread(self._server.start)


@contextlib.contextmanager
def database(kind: str, folder: Path) -> Iterator[tuple[str, OwnServer | None]]:
    if kind == "sqlite":
        yield f"sqlite:///{folder}/chaos.db", None
        return
    server = OwnServer()
    try:
        yield server.start().url, server
    finally:
        server.remove()


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Scene]:
    os.environ.update(IMPATIENT, HOLDFAST_DATABASE_URL=url)
    processes = Processes(folder)
    scene = Scene(fresh_tasks(), url, folder, processes)
    try:
        await scene.hf.migrate()
        await audit.install(scene.hf)
        yield scene
    finally:
        processes.end_all()
        await scene.hf.aclose()


async def one_round(kind: str, seed: int, seconds: float, folder: Path) -> list[str]:
    """What was wrong in the end."""
    rng = random.Random(seed)
    with database(kind, folder) as (url, server):
        async with opened(url, folder) as scene:
            clients = [Client(f"client {number}", scene, random.Random(rng.random())) for number in range(CLIENTS)]
            troubles = Troubles(scene, random.Random(rng.random()), server)
            end = time.monotonic() + seconds
            await asyncio.gather(troubles.run_until(end), *(client.run_until(end) for client in clients))
            with contextlib.suppress(pytest.fail.Exception):  # what has not ended is found by the verdict
                await scene.all_ended(SETTLE_SECONDS)
            settling = time.monotonic() - end
            acknowledged = {job_id for client in clients for job_id in client.acknowledged}
            started, done = scene.marks("started"), scene.marks("done")
            wrongs = troubles.wrongs + await verdict(scene.hf, acknowledged, started, done)
            refused = sum(client.refused for client in clients)
            states = {state: count for state, count in (await scene.hf.store.job_counts()).items() if count}
    print(
        f"  {len(acknowledged)} jobs acknowledged, {refused} calls refused, {len(started)} runs, troubles {dict(troubles.met)}"
    )
    print(f"  {settling:.1f} s later: {states}", flush=True)
    return wrongs


async def campaign(kinds: list[str], seed: int, minutes: float) -> int:
    over_at, number = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < over_at:
        kind, round_seed = kinds[number % len(kinds)], seed + number
        print(f"{kind}, seed {round_seed}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
        wrongs = await one_round(kind, round_seed, ROUND_SECONDS, folder)
        if wrongs:
            print("\n".join(wrongs[:WRONGS_SHOWN_MAX]))
            print(f"{len(wrongs)} broken promises; again: --store {kind} --seed {round_seed}; files: {folder}")
            return 1
        shutil.rmtree(folder)
        number += 1
    print(f"{number} rounds, every promise kept")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    wanted = parser.parse_args()
    kinds = ["sqlite", "postgres"] if wanted.store == "both" else [wanted.store]
    return asyncio.run(campaign(kinds, wanted.seed, wanted.minutes))


if __name__ == "__main__":
    sys.exit(main())
