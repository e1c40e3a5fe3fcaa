"""What is measured. Each function takes one sample of one queue and returns its figures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.peers.environments import Unusable
from bench.peers.processes import Workers
from bench.peers.scene import START_SECONDS, Scene, until_tally

Figures = dict[str, float]
WARM_UP_JOBS = 10
SETTLE_SECONDS = 3.0
LOOK_SECONDS = 5.0
LAST_OUTCOMES_SECONDS = 20.0


async def enqueue_one(scene: Scene) -> Figures:
    async with scene.place() as url:
        found = await scene.act(url, "one", scene.plan.enqueue_seconds)
    return {"per_second": found["jobs"] / found["seconds"]}


async def enqueue_many(scene: Scene) -> Figures:
    if not scene.about["batches"]:
        raise Unusable("has no call that enqueues many jobs")
    async with scene.place() as url:
        found = await scene.act(url, "many", scene.plan.enqueue_seconds)
    return {"per_second": found["jobs"] / found["seconds"]}


async def drain_one(scene: Scene) -> Figures:
    return await _drain(scene, 1)


async def drain_two(scene: Scene) -> Figures:
    return await _drain(scene, 2)


async def drain_backlog(scene: Scene) -> Figures:
    _postgres_only(scene)
    return await _drain(scene, 1, backlog=scene.plan.backlog, wanted=scene.plan.backlog_part)


async def _drain(scene: Scene, processes: int, *, backlog: int = 0, wanted: int = 0) -> Figures:
    """From the first job on, so that nobody's start counts, until the outcomes are in the database or the time is over."""
    jobs = backlog or scene.about["drain_jobs"]
    wanted = wanted or jobs
    async with scene.place(jobs) as url, scene.workers(url, processes) as workers:
        if not await until_tally(workers, 1, START_SECONDS):
            raise RuntimeError("no job was run")
        before, began = len(workers.tally), time.monotonic()
        in_time = await until_tally(workers, wanted, scene.plan.drain_seconds)
        if in_time and wanted == jobs and not await scene.all_finished(url, LAST_OUTCOMES_SECONDS):
            raise RuntimeError("all jobs were run, but not all outcomes were written")
        ended, noted = time.monotonic(), len(workers.tally)
        left = await scene.unfinished(url)
    done = noted if left is None else jobs - left
    if done <= before:
        raise RuntimeError("jobs were run, but none is finished")
    return {"per_second": (done - before) / (ended - began), "jobs": done - before, "seconds": ended - began}


async def latency(scene: Scene) -> Figures:
    plan = scene.plan
    async with scene.place() as url, scene.workers(url, 1) as workers:
        await _warm_up(scene, url, workers)
        sent = await scene.act(url, "pace", "stamp", plan.latency_per_second, plan.latency_seconds)
        await until_tally(workers, WARM_UP_JOBS + sent["jobs"], LOOK_SECONDS)
        late = sorted(value * 1000 for value in workers.tally.values()[WARM_UP_JOBS:])
    if len(late) < sent["jobs"]:
        raise RuntimeError(f"only {len(late)} of {sent['jobs']} jobs were run")
    return {"p50_ms": _quantile(late, 0.50), "p99_ms": _quantile(late, 0.99), "jobs": len(late)}


async def idle(scene: Scene) -> Figures:
    _postgres_only(scene)
    assert scene.postgres is not None
    async with scene.place() as url:
        await scene.postgres.log_statements(url)
        async with scene.workers(url, 1) as workers:
            await _warm_up(scene, url, workers)
            await asyncio.sleep(SETTLE_SECONDS)
            before = scene.postgres.statements_logged(url)
            await asyncio.sleep(scene.plan.idle_seconds)
            found = scene.postgres.statements_logged(url) - before
    return {"per_second": found / scene.plan.idle_seconds}


async def dead_rows(scene: Scene) -> Figures:
    """At a steady pace, while autovacuum works as configured: the most that were seen, and what is left at the end."""
    _postgres_only(scene)
    assert scene.postgres is not None
    plan, seen = scene.plan, [0]
    async with scene.place() as url, scene.workers(url, 1):
        pace = asyncio.create_task(scene.act(url, "pace", "noop", plan.steady_per_second, plan.steady_seconds))
        while not (await asyncio.wait([pace], timeout=LOOK_SECONDS))[0]:
            seen.append(await scene.postgres.dead_rows(url))
        sent = await pace
        await asyncio.sleep(SETTLE_SECONDS)
        seen.append(await scene.postgres.dead_rows(url))
        left = await scene.unfinished(url)
    return {"left": seen[-1], "most": max(seen), "jobs": sent["jobs"], "unfinished": left or 0}


async def killed_worker(scene: Scene) -> Figures:
    return await _disaster(scene, None)


async def crashed_database(scene: Scene) -> Figures:
    _postgres_only(scene)
    assert scene.postgres is not None
    return await _disaster(scene, scene.postgres.crash_and_start)


async def _disaster(scene: Scene, crash: Callable[[], Awaitable[None]] | None) -> Figures:
    """Two workers; one is killed, or the database crashes, in the middle. Whatever has ended is started again."""
    plan = scene.plan
    async with scene.place() as url:
        await scene.act(url, "fill", "nap", plan.naps)
        async with scene.workers(url, 2, gentle=True) as workers:
            if not await until_tally(workers, plan.disaster_at, START_SECONDS):
                raise RuntimeError(f"only {len(workers.tally)} jobs were run before the disaster")
            began, restarts = time.monotonic(), 0
            await (crash() if crash else workers.kill(0))
            while (seconds := time.monotonic() - began) < plan.rescue_seconds:
                restarts += await workers.replace_ended()
                if len(set(workers.tally.values())) == plan.naps and not await scene.unfinished(url):
                    break
                await asyncio.sleep(0.1)
            values, left = workers.tally.values(), await scene.unfinished(url)
    ran = len(set(values))
    completed = min(ran, plan.naps - (left or 0))  # a job that ran but is for ever unfinished in the database is not completed
    found: Figures = {"completed": completed, "twice": len(values) - ran, "restarts": restarts}
    return {**found, "seconds": seconds} if completed == plan.naps else found


def _postgres_only(scene: Scene) -> None:
    if scene.postgres is None:
        raise Unusable("not on PostgreSQL")


async def _warm_up(scene: Scene, url: str, workers: Workers) -> None:
    await scene.act(url, "fill", "noop", WARM_UP_JOBS)
    if not await until_tally(workers, WARM_UP_JOBS, START_SECONDS):
        raise RuntimeError("no job was run")


def _quantile(ascending: list[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))]
