"""From the call of `log.info` in a worker to a follower in another process, and what a thousand followers cost the database."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from bench.app import CHATTER_PER_SECOND, make_app
from bench.noise import loop_milliseconds
from bench.places import Place
from bench.plan import Line, Plan
from bench.processes import Child
from holdfast import Holdfast
from holdfast.job import LogLine
from holdfast.store.protocol import LogBatch

FOLLOWERS = 1000
BATCHES = 30
LINES_PER_BATCH = 20


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        runs, reads, calibrations = [], [], []
        for _ in range(plan.runs):
            calibrations.append(loop_milliseconds())
            runs.append(await _latencies(place, plan.follow_lines))
            reads.append(await _reads_per_batch(place))
        for name, part in (("p50", 0.50), ("p99", 0.99)):
            values = [run[int(part * len(run))] * 1000 for run in runs]
            title = f"log call to follower, {CHATTER_PER_SECOND} lines/s, {name}"
            lines.append(
                Line(metric="follow", store=place.name, title=title, unit="ms", ours=values, calibrations=calibrations)
            )
        title = f"queries per batch of lines, {FOLLOWERS} followers"
        lines.append(
            Line(metric="follow", store=place.name, title=title, unit="queries", ours=reads, calibrations=calibrations)
        )
    return lines


async def _latencies(place: Place, count: int) -> list[float]:
    """Ascending, in seconds; the first second of lines is warm-up."""
    url = await place.fresh()
    worker = await Child.start("work", url)
    await worker.ready()
    worker.say("go")
    app = make_app(url)
    job = await app.tasks["chatter"].enqueue(count + CHATTER_PER_SECOND)
    late = [time.monotonic() - float(line.message) async for line in app.follow(job.id) if line.level == "info"]
    await app.aclose()
    worker.end_input()
    await worker.answer()
    if len(late) != count + CHATTER_PER_SECOND:
        raise RuntimeError(f"A follower got {len(late)} of {count + CHATTER_PER_SECOND} lines.")
    return sorted(late[CHATTER_PER_SECOND:])


class Counting:
    """Stands in front of a store and counts what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._store, name)


async def _reads_per_batch(place: Place) -> float:
    """Every reading of lines, and of whether the run goes on."""
    app = make_app(await place.fresh())
    counting = Counting(app.store)
    app.store = counting  # type: ignore[assignment]
    job = await app.tasks["chatter"].enqueue(0)
    claim = await app.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["chatter"], limit=1)
    run_id = claim.jobs[0].run_id
    seen = [0] * FOLLOWERS
    followers = [asyncio.create_task(_count(app, job.id, seen, place_)) for place_ in range(FOLLOWERS)]
    for batch in range(BATCHES + 1):
        if batch == 1:
            counting.asked.clear()  # the first batch finds them arriving
        first = batch * LINES_PER_BATCH + 1
        lines = [LogLine(run_id=run_id, no=no, level="info", message=str(no)) for no in range(first, first + LINES_PER_BATCH)]
        await app.store.log_append_if_leased([LogBatch(job.id, run_id, lines)])
        while min(seen) < first + LINES_PER_BATCH - 1:  # noqa: ASYNC110 - a thousand cursors, no event
            await asyncio.sleep(0.005)
    reads = sum(counting.asked[verb] for verb in ("log_read", "log_read_new", "run_open", "job_get", "run_list"))
    for follower in followers:
        follower.cancel()
    await asyncio.gather(*followers, return_exceptions=True)
    await app.aclose()
    return reads / BATCHES


async def _count(app: Holdfast, job_id: str, seen: list[int], place: int) -> None:
    async for line in app.follow(job_id):
        seen[place] = line.no
