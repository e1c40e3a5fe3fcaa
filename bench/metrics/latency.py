"""From the call of enqueue to the first line of the task, in an idle worker of another process, at 50 jobs per second."""

from __future__ import annotations

import asyncio
import random
import time

from bench.app import make_app
from bench.noise import loop_milliseconds
from bench.places import Place
from bench.plan import Line, Plan
from bench.processes import Child

JOBS_PER_SECOND = 50
WARM_UP_JOBS = 10


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        runs, calibrations = [], []
        for number in range(plan.runs):
            calibrations.append(loop_milliseconds())
            runs.append(await _one_run(place, plan.latency_jobs, random.Random(number)))
        for name, part in (("p50", 0.50), ("p99", 0.99)):
            values = [_quantile(run, part) * 1000 for run in runs]
            title = f"enqueue to start, {JOBS_PER_SECOND} jobs/s, {name}"
            line = Line(metric="latency", store=place.name, title=title, unit="ms", ours=values, calibrations=calibrations)
            lines.append(line)
    return lines


async def _one_run(place: Place, jobs: int, rng: random.Random) -> list[float]:
    url = await place.fresh()
    worker = await Child.start("work", url)
    await worker.ready()
    worker.say("go")
    app = make_app(url)
    stamp = app.tasks["stamp"]
    for _ in range(WARM_UP_JOBS):
        await (await stamp.enqueue(time.monotonic())).result(timeout=20)
    job = None
    for _ in range(jobs):
        # Moments as irregular as in life: even steps would meet a poller at the same point of its interval each time.
        await asyncio.sleep(rng.expovariate(JOBS_PER_SECOND))
        job = await stamp.enqueue(time.monotonic())
    if job is not None:
        await job.result(timeout=20)
    await app.aclose()
    worker.end_input()
    answer = await worker.answer()
    return sorted(answer["started_after"][WARM_UP_JOBS:])


def _quantile(ascending: list[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))]
