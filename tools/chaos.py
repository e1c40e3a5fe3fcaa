"""A campaign against four workers, two reapers and a server: kills, freezes, broken networks and crashes of the database,
while jobs of all kinds run.

`python tools/chaos.py --minutes 5 --store both --seed 7`. In rounds of half a minute, each on a new database; at the end of a
round everything is let run to its end and every promise is checked. The seed decides about jobs and troubles, but not about
the moment at which a process meets them: run a seed that failed more than once. `--report` writes the figures into
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import psycopg  # noqa: E402
import pytest  # noqa: E402

from tests.processes import audit  # noqa: E402
from tests.processes.scene import APP, Scene, fresh_tasks  # noqa: E402
from tests.processes.verdict import verdict  # noqa: E402
from tests.support.postgres import OwnServer  # noqa: E402
from tests.support.processes import Process, Processes  # noqa: E402
from tests.support.waiting import until  # noqa: E402
from tools.chaos_capacity import LIMITS, leaked_in_postgres, leaked_in_sqlite, leaked_places, limit_tenants  # noqa: E402
from tools.chaos_clients import Client, HttpClient  # noqa: E402
from tools.chaos_memory import Memory, starve  # noqa: E402
from tools.chaos_places import database, put_logs_on  # noqa: E402
from tools.chaos_report import Round, written  # noqa: E402
from tools.chaos_wire import Wire  # noqa: E402
from tools.small_disk import SmallDisk  # noqa: E402

ROUND_SECONDS = 30.0
SETTLE_SECONDS = 90.0
STOP_SECONDS = 30.0
WORKERS = 4
REAPERS = 2
CLIENTS = 2
DATABASE_AWAY = 5
"""Exit code of a command that could not reach its database."""
WRONGS_SHOWN_MAX = 20
IMPATIENT = {
    "HOLDFAST_DEFAULT_LEASE_SEC": "1",
    "HOLDFAST_HEARTBEAT_SEC": "0.25",
    "HOLDFAST_REAPER_INTERVAL_SEC": "0.25",
    "HOLDFAST_GRACE_SEC": "0.2",
}


class Troubles:
    """One trouble after another."""

    def __init__(
        self,
        scene: Scene,
        processes: Processes,
        rng: random.Random,
        server: OwnServer | None,
        wire: Wire | None,
        disk: SmallDisk | None,
    ) -> None:
        self._scene = scene
        self._processes = processes
        self._rng = rng
        self._server = server
        self._wire = wire
        self._disk = disk
        self._starved: set[int] = set()
        self._workers = [self._new_worker() for _ in range(WORKERS)]
        self._reapers = [scene.reaper() for _ in range(REAPERS)]
        self._http = self._new_server()
        self._under_way: set[asyncio.Task[None]] = set()
        self.met: Counter[str] = Counter()
        self.wrongs: list[str] = []

    def server_address(self) -> str:
        """LookupError while it does not listen yet."""
        found = re.search(r"Serving (http://\S+)", self._http.output)
        if found is None:
            raise LookupError("the server does not listen yet")
        return found[1]

    def _new_server(self) -> Process:
        return self._processes.holdfast("server", "--port", "0", app=APP, database_url=self._scene.url)

    def everybody(self) -> list[Process]:
        return [*self._workers, *self._reapers, self._http]

    async def settled(self) -> None:
        """What was begun has ended; from now on nothing happens any more."""
        await asyncio.gather(*self._under_way)

    async def stopped(self) -> None:
        """Everybody is asked to go, as at the end of a deploy, and goes; nobody is left who serves this database."""
        self._start_again()
        for one in self.everybody():
            one.thaw()
            one.terminate()
        with contextlib.suppress(pytest.fail.Exception):  # told below, with what it printed
            await until(lambda: all(one.returncode is not None for one in self.everybody()), STOP_SECONDS)
        for one in self.everybody():
            if one.returncode is None:
                self.wrongs.append(
                    f"a process did not go within {STOP_SECONDS:g} s of SIGTERM; it printed:\n{one.output[-5000:]}"
                )
                one.kill()
            elif one.returncode not in (0, -15):  # a signal before it could listen to signals
                self.wrongs.append(f"a process ended with {one.returncode} after SIGTERM; it printed:\n{one.output[-5000:]}")
        left = orphans(self._scene.url)
        if left:
            self.wrongs.append(f"processes were left behind: {left}")

    async def run_until(self, end: float, only: list[str] | None) -> None:
        choices = [one for one in self._choices() if only is None or one.__name__.strip("_") in only]
        while time.monotonic() < end:
            await asyncio.sleep(self._rng.uniform(0.1, 1.5))
            self._start_again()
            trouble = self._rng.choice(choices)
            self.met[trouble.__name__.strip("_")] += 1
            await trouble()

    def _choices(self) -> list[Callable[[], Awaitable[None]]]:
        choices: list[Callable[[], Awaitable[None]]] = [self._kill, self._kill, self._freeze, self._replace]
        choices += [self._kill_reaper, self._kill_server, self._starve]
        if self._disk is not None:
            choices += [self._fill_disk, self._fill_disk]
        if self._server is not None:
            choices += [self._terminate_backends, self._crash_database]
            choices += [self._cut_wire, self._delay_wire, self._half_open_wire, self._forget_wire]
        else:
            choices += [self._hold_write_lock]
        return choices

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

    def _start_again(self) -> None:
        """As whoever supervises them does: a reaper or server that finds no database at its start ends and says so."""
        for place, one in enumerate(self._reapers):
            if one.returncode == DATABASE_AWAY:
                self._reapers[place] = self._scene.reaper()
                self.met["start_again"] += 1
        for place, one in enumerate(self._workers):
            if one.returncode is not None:
                self._note_end_of_worker(one)
                self._workers[place] = self._new_worker()
        if self._http.returncode == DATABASE_AWAY:
            self._http = self._new_server()
            self.met["start_again"] += 1

    def _note_end_of_worker(self, worker: Process) -> None:
        """Of one that nobody killed: it may find no database at its start, or no memory, and for no other reason."""
        if worker.pid in self._starved:
            self.met["ended_without_memory"] += 1
        elif worker.returncode == DATABASE_AWAY and "Worker " not in worker.output:
            self.met["start_again"] += 1
        else:
            self.wrongs.append(f"a worker ended by itself with {worker.returncode}; it printed:\n{worker.output[-5000:]}")

    async def _fill_disk(self) -> None:
        """Of SQLite's file, or of PostgreSQL's log lines; then there is room again, and everything goes on by itself."""
        assert self._disk is not None
        await asyncio.to_thread(self._disk.fill)
        await asyncio.sleep(self._rng.choice([0.5, 1, 3, 6]))
        self._disk.empty()

    async def _starve(self) -> None:
        """Not while it starts: that would only try Python's import. Whatever it meets, it goes on or ends itself."""
        victim = self._rng.choice(self._workers)
        if "Worker " in victim.output:
            self._starved.add(victim.pid)
            self._beside(starve(victim, self._rng.uniform(0.5, 3), self._rng.choice([0, 0.1, 1, 4])))

    async def _kill_reaper(self) -> None:
        victim = self._rng.randrange(REAPERS)
        self._reapers[victim].kill()
        self._reapers[victim] = self._scene.reaper()

    async def _kill_server(self) -> None:
        self._http.kill()
        self._http = self._new_server()

    def _beside(self, trouble: Coroutine[Any, Any, None]) -> None:
        """Others come meanwhile."""
        task = asyncio.ensure_future(trouble)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _cut_wire(self) -> None:
        assert self._wire is not None
        self._wire.cut()

    async def _delay_wire(self) -> None:
        assert self._wire is not None
        self._beside(self._wire.delay(self._rng.uniform(0.1, 2)))

    async def _half_open_wire(self) -> None:
        assert self._wire is not None
        self._beside(self._wire.half_open(self._rng.uniform(0.5, 5)))

    async def _forget_wire(self) -> None:
        assert self._wire is not None
        self._wire.forget()

    async def _terminate_backends(self) -> None:
        assert self._server is not None
        with psycopg.connect(self._server.url, autocommit=True) as admin:
            admin.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT %s""",
                [self._rng.choice([1, 1, 2, 1000])],
            )

    async def _crash_database(self) -> None:
        assert self._server is not None
        await asyncio.to_thread(self._server.stop, self._rng.choice(["immediate", "immediate", "fast"]))
        await asyncio.sleep(self._rng.uniform(0, 2))
        await asyncio.to_thread(self._server.start)


def orphans(url: str) -> list[int]:
    """Processes that were started for this database and still run, whoever their parent is now."""
    mark, found = f"HOLDFAST_DATABASE_URL={url}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_ours = not (folder / "comm").read_text().startswith(("postgres", "pg_ctl"))  # ours, too, but not meant
            if is_ours and int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@contextlib.asynccontextmanager
async def opened(
    url: str, folder: Path, server: OwnServer | None, disk: SmallDisk | None
) -> AsyncIterator[tuple[Scene, Processes, Wire | None]]:
    wire = None if server is None else await Wire(url).listen()
    url = url if wire is None else wire.url
    os.environ.update(IMPATIENT, HOLDFAST_DATABASE_URL=url)
    processes = Processes(folder)
    scene = Scene(fresh_tasks(), url, folder, processes)
    try:
        await scene.hf.migrate()
        await audit.install(scene.hf)
        await limit_tenants(scene.hf)
        if server is not None and disk is not None:
            put_logs_on(disk, server)
        yield scene, processes, wire
    finally:
        processes.end_all()
        await scene.hf.aclose()
        if wire is not None:
            await wire.close()


async def one_round(kind: str, seed: int, seconds: float, folder: Path, only: list[str] | None) -> tuple[Round, list[str]]:
    """Its figures, and what was wrong in the end."""
    rng = random.Random(seed)
    with database(kind, folder) as (url, server, disk):
        async with opened(url, folder, server, disk) as (scene, processes, wire):
            key = (await scene.hf.keys.create(role="service")).secret
            troubles = Troubles(scene, processes, random.Random(rng.random()), server, wire, disk)
            over, memory = asyncio.Event(), Memory(troubles.everybody)
            watching = asyncio.create_task(memory.run_until(over.is_set))
            clients: list[Client | HttpClient] = [
                Client(f"client {number}", scene, random.Random(rng.random())) for number in range(CLIENTS)
            ]
            clients.append(HttpClient(troubles.server_address, key, scene.folder, random.Random(rng.random())))
            end = time.monotonic() + seconds
            await asyncio.gather(troubles.run_until(end, only), *(client.run_until(end) for client in clients))
            await troubles.settled()
            with contextlib.suppress(pytest.fail.Exception):  # what has not ended is found by the verdict
                await scene.all_ended(SETTLE_SECONDS)
            settling = time.monotonic() - end
            over.set()
            await watching
            await troubles.stopped()
            acknowledged = {job_id for client in clients for job_id in client.acknowledged}
            started, done = scene.marks("started"), scene.marks("done")
            states = {state: count for state, count in (await scene.hf.store.job_counts()).items() if count}
            wrongs = troubles.wrongs + memory.wrongs() + await verdict(scene.hf, acknowledged, started, done, LIMITS)
            wrongs += await leaked(scene, server, wire)
    figures = Round(
        kind=kind,
        seed=seed,
        seconds=seconds,
        acknowledged=len(acknowledged),
        refused=sum(client.refused for client in clients),
        runs=len(started),
        troubles=dict(sorted(troubles.met.items())),
        settled_after=settling,
        most_mb=memory.most,
        states=states,
        wrongs=len(wrongs),
    )
    print(figures.told(), flush=True)
    return figures, wrongs


async def leaked(scene: Scene, server: OwnServer | None, wire: Wire | None) -> list[str]:
    """What is still taken, now that everybody has gone; our own connections go first, and the wire with what it swallowed."""
    found = await leaked_places(scene.hf)
    await scene.hf.aclose()
    if server is None or wire is None:
        return found + leaked_in_sqlite(scene.url.removeprefix("sqlite:///"))
    wire.cut()
    wrongs = leaked_in_postgres(server.url)
    give_up_at = time.monotonic() + STOP_SECONDS
    while wrongs and time.monotonic() < give_up_at:  # a backend notices after a moment that nobody is there any more
        await asyncio.sleep(0.1)
        wrongs = leaked_in_postgres(server.url)
    return found + wrongs


async def campaign(kinds: list[str], wanted: argparse.Namespace) -> int:
    over_at, number, rounds = time.monotonic() + 60 * wanted.minutes, 0, list[Round]()
    while number < wanted.rounds if wanted.rounds is not None else time.monotonic() < over_at:
        kind, round_seed = kinds[number % len(kinds)], wanted.seed + number
        print(f"{kind}, seed {round_seed}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-chaos-"))
        figures, wrongs = await one_round(kind, round_seed, wanted.seconds, folder, wanted.only)
        rounds.append(figures)
        if wanted.report:
            written(rounds)
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
    parser.add_argument("--rounds", type=int, help="so many, instead of minutes")
    parser.add_argument("--seconds", type=float, default=ROUND_SECONDS, help="of a round")
    parser.add_argument("--only", action="append", help="this trouble, for example fill_disk; may be repeated")
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--report", action="store_true", help="write the figures into docs/reliability.md")
    wanted = parser.parse_args()
    kinds = ["sqlite", "postgres"] if wanted.store == "both" else [wanted.store]
    return asyncio.run(campaign(kinds, wanted))


if __name__ == "__main__":
    sys.exit(main())
