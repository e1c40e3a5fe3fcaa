"""`python -m bench.recovery`: from SIGKILL to the next run, default settings; writes bench/results/recovery.md.

All cases wait side by side, each on a database of its own: they take minutes and next to no CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench import report
from bench.noise import fdatasync_milliseconds
from bench.peers.catalog import PEERS
from bench.peers.environments import prepare_cache, python_of
from bench.peers.stores import Postgres
from bench.processes import ROOT
from bench.recovery.mark import VARIABLE, hang
from holdfast import Holdfast, __version__

RESULT = Path(__file__).parents[1] / "results" / "recovery.md"
BOUND_SECONDS = 360.0
START_SECONDS = 90.0
RESTART_SECONDS = 1.0
PHASE_SECONDS = (5.0, 20.0)
"""How long the job runs before the kill: at a random moment between two heartbeats."""
STORES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}


class Case(NamedTuple):
    queue: str
    store: str
    name: str
    neighbour: bool = False
    supervised: bool = False
    restarted: bool = False
    elsewhere: bool = False
    """What the worker's row says of its process is deleted: as if it ran on another host."""

    @property
    def title(self) -> str:
        return f"{self.queue} on {STORES[self.store]}, {self.name}"


CASES = [
    Case("holdfast", "postgres", "supervised (`--processes 2`)", supervised=True),
    Case("holdfast", "sqlite", "supervised (`--processes 2`)", supervised=True),
    Case("holdfast", "postgres", "one worker, started again", restarted=True),
    Case("holdfast", "sqlite", "one worker, started again", restarted=True),
    Case("holdfast", "postgres", "another worker on the same host", neighbour=True),
    Case("holdfast", "sqlite", "another worker on the same host", neighbour=True),
    Case("holdfast", "postgres", "another worker on another host", neighbour=True, elsewhere=True),
    Case("holdfast", "postgres", "one worker, started again on another host", restarted=True, elsewhere=True),
    Case("pgqueuer", "postgres", "another worker", neighbour=True),
    Case("pgqueuer", "postgres", "one worker, started again", restarted=True),
    Case("procrastinate", "postgres", "another worker", neighbour=True),
    Case("procrastinate", "postgres", "one worker, started again", restarted=True),
]


class Bench:
    def __init__(self, postgres: Postgres, folder: Path) -> None:
        self._postgres = postgres
        self._folder = folder
        self._pythons = {peer.name: python_of(peer) for peer in PEERS if peer.name in {case.queue for case in CASES}}
        self._one_at_a_time = asyncio.Lock()
        self.versions = {"holdfast": __version__}

    async def sample(self, case: Case, number: int) -> float | None:
        """Seconds; None: not within the bound."""
        marks = self._folder / f"{CASES.index(case)}-{number}"
        marks.touch()
        async with self._one_at_a_time:  # PostgreSQL refuses to copy a database that is being copied
            url = f"sqlite:///{marks}.db" if case.store == "sqlite" else await self._postgres.fresh()
            await self._set_up(case, url)
        async with self._workers(case, url, marks) as workers:
            await workers.start()
            victim = (await _marks(marks, 1, START_SECONDS))[0][1]
            if case.neighbour:
                await workers.start()
            await asyncio.sleep(random.uniform(*PHASE_SECONDS))
            if case.elsewhere:
                await self._postgres.ask(url, "UPDATE holdfast.workers SET process = NULL")
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            if case.restarted:
                await asyncio.sleep(RESTART_SECONDS)
                await workers.start()
            found = await _marks(marks, 2, BOUND_SECONDS)
        return found[1][0] - killed if len(found) > 1 else None

    async def _set_up(self, case: Case, url: str) -> None:
        if case.queue == "holdfast":
            hf = Holdfast(url)
            await hf.migrate()
            await hf.task(name="job")(hang).enqueue()
            await hf.aclose()
            return
        command = (self._pythons[case.queue], "-m", "bench.recovery.peer", case.queue, "setup", url)
        setup = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)
        said, _ = await setup.communicate()
        if setup.returncode:
            raise RuntimeError(f"{case.queue} could not be set up; what it said is above.")
        self.versions[case.queue] = said.decode().split()[0]

    @asynccontextmanager
    async def _workers(self, case: Case, url: str, marks: Path) -> AsyncIterator[Workers]:
        if case.queue == "holdfast":
            app = ("-m", "holdfast", "--app", "bench.recovery.holdfast_app:hf", "worker")
            command = (sys.executable, *app, *(("--processes", "2") if case.supervised else ()))
        else:
            command = (self._pythons[case.queue], "-m", "bench.recovery.peer", case.queue, "work", url)
        workers = Workers(command, {**os.environ, VARIABLE: str(marks), "HOLDFAST_DATABASE_URL": url})
        try:
            yield workers
        finally:
            await workers.end()


class Workers:
    """Processes of one case, each in a group of its own."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str]) -> None:
        self._command, self._environment = command, environment
        self._started: list[Process] = []

    async def start(self) -> None:
        options = {"cwd": ROOT, "env": self._environment, "stdout": DEVNULL, "stderr": DEVNULL}
        self._started.append(await asyncio.create_subprocess_exec(*self._command, **options, start_new_session=True))

    async def end(self) -> None:
        for process in self._started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            await process.wait()


async def _marks(path: Path, count: int, seconds: float) -> list[tuple[float, int]]:
    """(when, pid) of so many starts, or of those that came within that time."""
    ends = time.monotonic() + seconds
    while True:
        found = _read(path)
        if len(found) >= count or time.monotonic() > ends:
            return found
        await asyncio.sleep(0.02)


def _read(path: Path) -> list[tuple[float, int]]:
    return [(float(at), int(pid)) for at, pid in (line.split() for line in path.read_text(encoding="utf-8").splitlines())]


async def measure(samples: int) -> str:
    prepare_cache()
    postgres = Postgres()
    await postgres.open()
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-recovery-") as folder:
            bench = Bench(postgres, Path(folder))
            rows = await asyncio.gather(*(_row(bench, case, samples) for case in CASES))
        machine = report.machine(fdatasync_milliseconds(), postgres.version)
    finally:
        await postgres.close()
    return _page(rows, machine, bench.versions)


async def _row(bench: Bench, case: Case, samples: int) -> str:
    taken: list[float | None] = []
    for number in range(samples):
        taken.append(await bench.sample(case, number))
        print(f"{case.title}: {taken[-1]}", flush=True)
        if taken[-1] is None:
            break
    known = [seconds for seconds in taken if seconds is not None]
    if len(known) < len(taken):
        return f"| {case.title} | not within {BOUND_SECONDS:.0f} s | |"
    shown = ", ".join(f"{seconds:.1f}" for seconds in sorted(known))
    return f"| {case.title} | **{statistics.median(known):.1f} s** | {shown} |"


def _page(rows: list[str], machine: dict[str, object], versions: dict[str, str]) -> str:
    named = ", ".join(f"{name} {number}" for name, number in versions.items())
    return "\n".join(
        [
            "# From SIGKILL to the next run",
            "",
            "`python -m bench.recovery`: a worker is killed at a random moment while its job runs; how long until the job",
            "starts again. Every queue has its defaults. *Started again*: one second after the kill.",
            "On *another host*: the worker's row does not name its process, so that only its session proves its death.",
            "",
            "| case | median | samples, in seconds |",
            "|---|---|---|",
            *rows,
            "",
            f"{machine['measured_at']}, {machine['processor']}, {machine['cores']} cores, Python {machine['python']},",
            f"PostgreSQL {machine['postgres']}; {named}. All cases ran at the same time.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--samples", type=int, default=5, help="of each case")
    page = asyncio.run(measure(parser.parse_args().samples))
    RESULT.write_text(page, encoding="utf-8")
    print(f"\n{page}")


if __name__ == "__main__":
    main()
