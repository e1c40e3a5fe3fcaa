"""See Holdfast work, in about ten seconds: python examples/demo.py

Jobs that work, fail, wait, keep their order; and a worker that is killed for real, in the middle of a job.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from holdfast import Abort, Holdfast, Job, State, current, step
from holdfast.job import LogLine

FOLDER = os.environ.get("DEMO_FOLDER") or tempfile.mkdtemp(prefix="holdfast-demo-")
JOBS = 8
PARTS = 6
GIVE_UP_SECONDS = 30.0
LOOK_SECONDS = 0.1

hf = Holdfast(f"sqlite:///{FOLDER}/jobs.db", lease=1.5, heartbeat=0.4)


# -- the tasks: ordinary functions -----------------------------------------------------------------------------------


@hf.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


@hf.task(max_attempts=5, backoff=(0.8, 2))
async def flaky() -> str:
    if current().attempt == 1:
        raise ConnectionError("the other side hung up")
    return f"worked at attempt {current().attempt}"


@hf.task
async def remind(text: str) -> str:
    return text


@hf.task
async def charge(card: str) -> None:
    raise Abort(f"card {card} has expired", code="card_expired")


@hf.task
async def book(number: int) -> str:
    await asyncio.sleep(0.3)
    return f"booking {number} of account 7"


@hf.task(max_attempts=3, backoff=(0.3,))
async def import_orders() -> str:
    for part in range(1, PARTS + 1):
        await step(f"part {part}", import_part, part)  # remembered: a later attempt skips what is done
        current().progress(part / PARTS, f"part {part} of {PARTS}")
    return f"{PARTS} parts imported"


async def import_part(part: int) -> int:
    await asyncio.sleep(0.5)
    current().log.info(f"imported part {part}")
    return part


# -- what you see ----------------------------------------------------------------------------------------------------

MARKS = {
    "queued": ("○", "dim"),
    "scheduled": ("◷", "blue"),
    "running": ("●", "cyan"),
    "retrying": ("↻", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✕", "red"),
}


class Show:
    """Prints what happens as it happens, above a table of how things stand."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._began = time.monotonic()
        self._seen: dict[str, str] = {}
        self._live = Live(console=self.console, refresh_per_second=12, transient=True)

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def title(self, text: str) -> None:
        self.console.print(Rule(Text(text, style="bold"), align="left", style="dim"))

    def tell(self, mark: str, style: str, text: str) -> None:
        self.console.print(Text.assemble((f"{self.seconds:5.1f} s  ", "dim"), (f"{mark} ", style), text))

    def jobs(self, jobs: list[Job[Any]]) -> None:
        for job in reversed(jobs):
            if self._seen.get(job.id) != job.status:
                self._seen[job.id] = job.status
                self._changed(job)
        self._live.update(Group("", table_of(jobs)))

    def _changed(self, job: Job[Any]) -> None:
        mark, style = MARKS[job.status]
        if job.status == "completed":
            self.tell(mark, style, f"{job.task}: {job.output}")
        elif job.status == "failed":
            self.tell(mark, style, f"{job.task} failed for good, as it asked to: {job.error_message}")
        elif job.status == "retrying":
            self.tell(mark, style, f"{job.task} will be tried again: {job.error_message or 'its worker is gone'}")
        elif job.status == "scheduled":
            self.tell(mark, style, f"{job.task} waits until its time has come")


def table_of(jobs: list[Job[Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for column in ("", "task", "state", "attempt", "", "result"):
        table.add_column(column, no_wrap=True)
    for job in reversed(jobs):
        mark, style = MARKS[job.status]
        bar = ProgressBar(total=1, completed=job.progress, width=16) if job.progress is not None else ""
        said = job.error_message if job.state is State.FAILED else job.output
        attempt = f"{job.attempt} of {job.max_attempts}" if job.attempt else ""
        table.add_row(
            Text(mark, style), job.task, Text(job.status, style), attempt, bar, Text(str(said or ""), overflow="ellipsis")
        )
    return table


# -- what happens ----------------------------------------------------------------------------------------------------


def start_worker(name: str) -> subprocess.Popen[bytes]:
    """A real one: `holdfast worker` in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    with Path(FOLDER, f"worker-{name}.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", "--app", "demo:hf", "worker", "--no-reap"],
            cwd=FOLDER,
            env={**os.environ, "DEMO_FOLDER": FOLDER, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
        )


async def enqueue_all() -> Job[str]:
    long_one = await import_orders.enqueue()
    await greet.enqueue("Ada")
    await flaky.enqueue()
    await remind.options(delay=3).enqueue("tea is ready")
    await charge.enqueue("4711")
    await hf.enqueue_many([book.options(order="account 7").job(number) for number in (1, 2, 3)])
    return long_one


async def half_way(show: Show, job_id: str) -> None:
    while ((await hf.get(job_id)).progress or 0) < 0.5:
        await look(show)


async def everything_ended(show: Show) -> None:
    """Meanwhile this process is the reaper; in production each worker does that too."""
    while True:
        report = await hf.reap()
        for job in report.jobs:
            show.tell("⟲", "magenta", f"the reaper sees that worker A is gone, and rescues {job.task}")
        if all(job.state.ended for job in await look(show)):
            return


async def look(show: Show) -> list[Job[Any]]:
    if show.seconds > GIVE_UP_SECONDS:
        raise TimeoutError
    await asyncio.sleep(LOOK_SECONDS)
    jobs = await hf.jobs()
    show.jobs(jobs)
    return jobs


async def play(show: Show, workers: list[subprocess.Popen[bytes]]) -> str:
    """The id of the job whose worker was killed."""
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # the show tells it already
    await hf.migrate()
    show.title("Eight jobs go into an SQLite file, a worker starts")
    long_one = await enqueue_all()
    workers.append(start_worker("A"))
    await half_way(show, long_one.id)

    workers[0].send_signal(signal.SIGKILL)
    workers[0].wait()
    show.title("Worker A is killed (SIGKILL) while it imports; worker B starts")
    workers.append(start_worker("B"))
    await everything_ended(show)
    return long_one.id


async def summary(show: Show, long_id: str) -> None:
    jobs, runs = await hf.jobs(), await hf.runs(long_id)
    first, last = await hf.logs(runs[-1].run_id), await hf.logs(runs[0].run_id)
    done = sum(1 for job in jobs if job.state is State.COMPLETED)
    failed = sum(1 for job in jobs if job.state is State.FAILED)
    show.title("How it ended")
    show.console.print(table_of(jobs))
    show.console.print()
    show.console.print(
        f"import_orders: attempt 1 did parts {parts_in(first)}, attempt {runs[0].attempt} only parts {parts_in(last)}."
    )
    show.console.print(
        f"{done} completed, {failed} failed on purpose, {JOBS - done - failed} lost, in {show.seconds:.1f} s.",
        style="bold green",
    )
    show.console.print("\nYour turn:  holdfast init myproject && cd myproject && holdfast dev")


def parts_in(lines: list[LogLine]) -> str:
    return ", ".join(line.message.rpartition(" ")[2] for line in lines if line.message.startswith("imported part "))


def what_the_workers_said() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(FOLDER).glob("worker-*.txt")))


async def main() -> int:
    workers: list[subprocess.Popen[bytes]] = []
    try:
        with Show() as show:
            long_id = await play(show, workers)
        await summary(show, long_id)
        return 0
    except TimeoutError:
        print(f"This took too long; the workers said:\n{what_the_workers_said()}", file=sys.stderr)
        return 1
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
        await hf.aclose()
        shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except KeyboardInterrupt:
        sys.exit(130)
