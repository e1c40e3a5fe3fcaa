"""A steady rate of jobs of all kinds for an hour, on two workers and a server: does anything grow?

`python -m tools.soak --minutes 60 --store postgres --rate 50`. Each ten seconds: memory, open files, threads, dead rows, size
of the store, what waits and the latency are written into build/soak/STORE.csv; at the end they are drawn into STORE.svg, and
the last quarter is held against the second one. Whatever has ended is forgotten after a tenth of the time, so that the store
can stay as large as it is. `--report` writes the verdict into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx

from bench.peers.tally import VARIABLE, Tally
from holdfast import Holdfast
from holdfast.errors import JobConflict
from holdfast.task import JobSpec
from tests.support.postgres import OwnServer
from tests.support.processes import Process, Processes
from tests.support.waiting import until
from tools import pages
from tools.process_stats import Taken, taken_by, taken_by_process
from tools.soak_chart import chart
from tools.soak_samples import Book, Sample, Verdict, quantile, verdicts

APP = "tools.soak_app:hf"
FOLDER = pages.PAGE.parents[1] / "build" / "soak"
PICTURES = pages.PAGE.parent / "images"
TICK_SECONDS = 0.2
SAMPLE_SECONDS = 10.0
PRUNE_SECONDS = 30.0
CANCEL_AFTER_SECONDS = 0.5
END_SECONDS = 120.0
TASKS_BY_WEIGHT = {"plain": 70, "in_thread": 10, "logging": 8, "at_third_attempt": 5, "failing": 3, "until_cancelled": 4}


class Producer:
    """So many jobs in every second, whatever the others do; some of them are cancelled again."""

    def __init__(self, tasks: ModuleType, rate: float) -> None:
        self._tasks = tasks
        self._hf: Holdfast = tasks.hf
        self._rate = rate
        self._rng = random.Random(11)
        self._cancelling: set[asyncio.Task[None]] = set()
        self.sent = 0

    async def run_until(self, end: float) -> None:
        began = time.monotonic()
        while time.monotonic() < end:
            due = int((time.monotonic() - began) * self._rate) - self.sent
            if due > 0:
                await self._send(due)
            await asyncio.sleep(TICK_SECONDS)
        await asyncio.gather(*self._cancelling)

    async def _send(self, count: int) -> None:
        names = self._rng.choices(list(TASKS_BY_WEIGHT), list(TASKS_BY_WEIGHT.values()), k=count)
        jobs: list[JobSpec[Any]] = [getattr(self._tasks, name).job(time.time()) for name in names]
        for job, name in zip(await self._hf.enqueue_many(jobs), names, strict=True):
            if name == "until_cancelled":
                task = asyncio.create_task(self._cancel(job.id))
                self._cancelling.add(task)
                task.add_done_callback(self._cancelling.discard)
        self.sent += count

    async def _cancel(self, job_id: str) -> None:
        await asyncio.sleep(CANCEL_AFTER_SECONDS)
        with contextlib.suppress(JobConflict):  # it ended before
            await self._hf.cancel(job_id, by="soak")


class Watcher:
    """Takes the samples."""

    def __init__(self, hf: Holdfast, groups: dict[str, Process], server: OwnServer | None, tally: Tally, book: Book) -> None:
        self._hf = hf
        self._groups = groups
        self._server = server
        self._tally = tally
        self._book = book
        self._seen = 0
        self._cpu = dict[str, float]()
        self._began = self._last = time.monotonic()
        self._taken()

    async def run_until(self, end: float, key: str) -> None:
        address = self._groups["server"].output.split("Serving ")[1].split()[0]
        async with httpx.AsyncClient(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            while (pause := min(SAMPLE_SECONDS, end - time.monotonic())) > 1:
                await asyncio.sleep(pause)
                for path in ("/api/jobs", "/healthz"):
                    (await client.get(path)).raise_for_status()
                self._book.add(await self._sample())
                print("  ".join(f"{name} {value:,.5g}" for name, value in self._book.samples[-1].items()), flush=True)

    async def _sample(self) -> Sample:
        now, taken = time.monotonic(), self._taken()
        late = sorted(1000 * value for value in self._tally.values(self._seen))
        self._seen += len(late)
        sample: Sample = {"seconds": round(now - self._began, 1)}
        for name, one in taken.items():
            sample |= {f"{name}_rss_mb": one.rss_mb, f"{name}_files": one.files, f"{name}_threads": one.threads}
        used = sum(one.cpu_seconds for one in taken.values())
        sample["cpu_percent"] = 100 * (used - self._cpu.get("all", used)) / (now - self._last)
        self._cpu["all"], self._last = used, now
        sample |= {"started": len(late), "p50_ms": quantile(late, 0.5), "p99_ms": quantile(late, 0.99)}
        counts = await self._hf.store.job_counts()
        sample["waiting"] = counts.get("queued", 0) + counts.get("running", 0)
        return sample | await self._store_sample()

    def _taken(self) -> dict[str, Taken]:
        found = {name: taken_by(process.pid) for name, process in self._groups.items()}
        found["producer"] = taken_by_process(os.getpid())
        self._cpu.setdefault("all", sum(one.cpu_seconds for one in found.values()))
        return found

    async def _store_sample(self) -> Sample:
        async with self._hf.transaction() as tx:
            if self._server is not None:
                (row,) = await tx.fetch(
                    """SELECT sum(n_dead_tup)::float AS dead, sum(pg_total_relation_size(relid))::float / 1048576 AS mb
                       FROM pg_stat_user_tables WHERE schemaname = 'holdfast'"""
                )
                return {"dead_rows": float(row["dead"]), "store_mb": float(row["mb"])}
            (row,) = await tx.fetch("PRAGMA freelist_count")
        path = Path(self._hf.settings.database_url.removeprefix("sqlite:///"))
        size = sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*"))
        return {"dead_rows": float(next(iter(row.values()))), "store_mb": size / 2**20}


async def prune_until(hf: Holdfast, end: float) -> None:
    """More often than each ten minutes, so that an hour shows more than two steps."""
    while (pause := min(PRUNE_SECONDS, end - time.monotonic())) > 0:
        await asyncio.sleep(pause)
        await hf.prune()


@contextlib.asynccontextmanager
async def scene(kind: str, kept_days: float) -> AsyncIterator[tuple[ModuleType, Processes, OwnServer | None, Tally]]:
    folder, tally = Path(tempfile.mkdtemp(prefix="holdfast-soak-")), Tally()
    server = OwnServer().start() if kind == "postgres" else None
    url = server.url if server is not None else f"sqlite:///{folder}/soak.db"
    kept = {f"HOLDFAST_RETENTION_{what}_DAYS": str(kept_days) for what in ("FINISHED", "FAILED", "EVENTS", "LOGS")}
    os.environ.update(kept, HOLDFAST_DATABASE_URL=url, **{VARIABLE: str(tally.path)})
    from tools import soak_app as tasks  # reads the environment

    processes = Processes(folder)
    try:
        await tasks.hf.migrate()
        yield tasks, processes, server, tally
    finally:
        processes.end_all()
        await tasks.hf.aclose()
        if server is not None:
            server.remove()
        tally.remove()
        shutil.rmtree(folder)


async def soak(kind: str, minutes: float, rate: float, book: Book) -> list[str]:
    """What went wrong besides figures that grew."""
    wrongs = list[str]()
    whole = asyncio.current_task()
    assert whole is not None
    for number in (signal.SIGINT, signal.SIGTERM):  # so that nothing is left running by whoever breaks it off
        asyncio.get_running_loop().add_signal_handler(number, whole.cancel)
    async with scene(kind, minutes / 10 / 24 / 60) as (tasks, processes, server, tally):
        hf: Holdfast = tasks.hf
        key = (await hf.keys.create(role="service")).secret
        groups = {f"worker_{number}": processes.worker(app=APP, database_url=hf.settings.database_url) for number in (1, 2)}
        groups["server"] = processes.holdfast("server", "--port", "0", app=APP, database_url=hf.settings.database_url)
        for one in groups.values():
            await one.printed("Serving " if one is groups["server"] else "Worker ", 60)
        producer, end = Producer(tasks, rate), time.monotonic() + 60 * minutes
        watcher = Watcher(hf, groups, server, tally, book)
        await asyncio.gather(producer.run_until(end), watcher.run_until(end, key), prune_until(hf, end))

        async def nothing_active() -> bool:
            counts = await hf.store.job_counts()
            return not counts.get("queued") and not counts.get("running")

        await until(nothing_active, END_SECONDS)
        if len(tally) < producer.sent - 100:  # those that were cancelled before they began
            wrongs.append(f"{producer.sent} jobs were sent and only {len(tally)} began")
        for name, one in groups.items():
            one.terminate()
            if code := await one.exited(60):
                wrongs.append(f"{name} ended with {code}; it printed:\n{one.output[-3000:]}")
    return wrongs


def table(found: list[Verdict], caption: str) -> str:
    rows = [one.row() for one in found]
    return "\n".join([caption, "", "| | second quarter | last quarter | |", "|---|---|---|---|", *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--rate", type=float, default=50.0, help="jobs per second")
    parser.add_argument("--report", action="store_true", help="write verdict and picture into docs/reliability.md")
    wanted = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    book = Book(FOLDER / f"{wanted.store}.csv")
    caption = f"{wanted.store}, {wanted.rate:g} jobs/s for {wanted.minutes:g} min; {pages.where_and_when()}"
    try:
        wrongs = asyncio.run(soak(wanted.store, wanted.minutes, wanted.rate, book))
    finally:
        if book.samples:
            (FOLDER / f"{wanted.store}.svg").write_text(chart(book.samples, caption), encoding="utf-8")
    found = verdicts(book.samples)
    print(table(found, caption), *wrongs, sep="\n")
    if wanted.report:
        picture = f"soak-{wanted.store}.svg"
        (PICTURES / picture).write_text(chart(book.samples, caption), encoding="utf-8")
        pages.written(f"soak-{wanted.store}", f"{table(found, caption)}\n\n![The samples of the soak](images/{picture})")
    return 0 if not wrongs and all(one.flat for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
