"""Schedules and batches kept by real processes that race and are killed."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import pytest

from holdfast import Holdfast
from tests.support.processes import Processes
from tests.support.waiting import until

APP = "tests.apps.ticking:hf"


@pytest.mark.case("C37")
@pytest.mark.timeout(180)
async def test_three_processes_one_of_them_killed_keep_each_tick_once(
    hf: Holdfast, database_url: str, processes: Processes
) -> None:
    """Two workers and a reaper on one schedule by the second, one worker killed in between; no tick has two jobs, and all are
    whole seconds after the first. Meanwhile a batch of 200 jobs ends, and its last job is made once."""
    started = [processes.worker(app=APP, database_url=database_url) for _ in range(2)]
    started.append(processes.holdfast("reaper", app=APP, database_url=database_url))
    for worker in started[:2]:
        await worker.registered(hf.store, timeout=60)

    @hf.task
    async def part(n: int) -> int:
        return n

    @hf.task
    async def total() -> str:
        return ""

    batch = await hf.batch([part.job(n) for n in range(200)], then=total.job())

    async def ticks(least: int) -> list[datetime]:
        jobs = await hf.jobs(task="beat", limit=200)
        return [datetime.fromisoformat(job.meta["tick"]) for job in jobs] if len(jobs) >= least else []

    seen = await until(lambda: ticks(2), timeout=60)
    started[0].kill()
    seen = await until(lambda: ticks(len(seen) + 3), timeout=60)
    assert max(Counter(seen).values()) == 1, seen
    assert all((tick - seen[-1]) % timedelta(seconds=1) == timedelta() for tick in seen)

    async def the_batch_has_ended() -> bool:
        return (await batch.refresh()).ended

    await until(the_batch_has_ended, timeout=60)
    assert batch.then_id is not None
    assert await hf.wait_for_result(batch.then_id, timeout=60) == "all done"
    assert len(await hf.jobs(task="total")) == 1
    assert all(process.returncode is None for process in started[1:]), [process.output for process in started]
