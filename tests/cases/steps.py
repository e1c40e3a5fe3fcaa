"""The steps that most cases are told with: work until nothing is left, work beside the test, read what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from holdfast import Holdfast, Job, State
from holdfast.job import LogLine
from holdfast.processes.worker import Worker
from holdfast.processes.worker_end import WorkerEnd
from tests.support.waiting import until

PATIENCE_SECONDS = 100


async def drain(hf: Holdfast, **options: Any) -> WorkerEnd:
    """Work until nothing is left to do now."""
    return await asyncio.wait_for(hf.run_worker(exit_when_idle=0.0, **options), PATIENCE_SECONDS)


@contextlib.asynccontextmanager
async def working(hf: Holdfast, **options: Any) -> AsyncIterator[Worker]:
    """A worker beside the test; at the end what still runs is given back."""
    worker = hf.worker(**options)
    life = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        if not life.done():
            worker.stop()
            worker.stop()
        await asyncio.wait_for(life, PATIENCE_SECONDS)


def in_a_thread(worker: Worker) -> threading.Thread:
    """The worker on a loop of its own, which its tasks may block."""

    async def work() -> None:
        await worker.run()
        await worker.store.leave_loop()

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    return thread


async def ends(hf: Holdfast, job: Job[Any]) -> Job[Any]:
    """The job once it has ended."""

    async def ended() -> Job[Any] | None:
        found = await hf.get(job.id)
        return found if found.state.ended else None

    return await until(ended, PATIENCE_SECONDS)


async def comes_to(hf: Holdfast, job: Job[Any], state: State) -> Job[Any]:
    """The job once it is in this state."""

    async def there() -> Job[Any] | None:
        found = await hf.get(job.id)
        return found if found.state is state else None

    return await until(there, PATIENCE_SECONDS)


async def lines(hf: Holdfast, job: Job[Any]) -> list[LogLine]:
    """What the job's newest run has logged."""
    return await hf.logs((await hf.runs(job.id))[0].run_id)


async def messages(hf: Holdfast, job: Job[Any]) -> list[str]:
    return [line.message for line in await lines(hf, job)]


async def jobs_stored(hf: Holdfast) -> int:
    return sum((await hf.store.job_counts()).values())


@contextlib.contextmanager
def output_thrown_away() -> Iterator[None]:
    """For tasks that print more than a test report should hold."""
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
