"""Enqueue: one by one, by many coroutines at once, and in batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from bench.app import make_app
from bench.floor import BATCH
from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan

COROUTINES = 20


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        url, floor_url = await place.fresh(), await place.fresh()
        app, floor = make_app(url), place.floor(floor_url)
        await floor.open()
        await floor.create()
        noop = app.tasks["noop"]

        async def one() -> None:
            await noop.enqueue(1)  # noqa: B023

        async def call_of(jobs: int) -> None:
            await app.enqueue_many([noop.job(number) for number in range(jobs)])  # noqa: B023

        def floor_calls(way: str) -> Callable[[int], Awaitable[None]]:
            return lambda rows: floor.insert_many(rows, way)  # noqa: B023

        for title, coroutines in (("one by one", 1), (f"by {COROUTINES} coroutines at once", COROUTINES)):
            ours = _singles(one, coroutines, plan.single_seconds)
            bare = _singles(floor.insert_one, coroutines, plan.single_seconds)
            found, calibrations = await alternate(plan.runs, ours, bare)
            lines.append(_line(place, title, found[0], {"INSERT": found[1]}, calibrations))
        for title, calls, jobs in (
            (f"{plan.one_call:,} in one call", 1, plan.one_call),
            (f"{plan.calls * BATCH:,} in calls of {BATCH:,}", plan.calls, BATCH),
        ):
            ways = floor.batch_ways
            samples = [_batches(call_of, calls, jobs), *(_batches(floor_calls(way), calls, jobs) for way in ways)]
            found, calibrations = await alternate(plan.runs, *samples)
            lines.append(_line(place, title, found[0], dict(zip(ways, found[1:], strict=True)), calibrations))
        await floor.close()
        await app.aclose()
    return lines


def _line(place: Place, title: str, ours: list[float], floors: dict[str, list[float]], calibrations: list[float]) -> Line:
    line = Line(metric="enqueue", store=place.name, title=f"enqueue {title}", unit="jobs/s", ours=ours, floors=floors)
    return msgspec.structs.replace(line, calibrations=calibrations)


def _singles(insert: Callable[[], Awaitable[None]], coroutines: int, seconds: float) -> Sample:
    async def sample() -> float:
        await insert()
        started = time.perf_counter()
        ends = started + seconds
        done = 0

        async def insert_until_the_end() -> None:
            nonlocal done
            while time.perf_counter() < ends:
                await insert()
                done += 1

        await asyncio.gather(*(insert_until_the_end() for _ in range(coroutines)))
        return done / (time.perf_counter() - started)

    return sample


def _batches(insert: Callable[[int], Awaitable[None]], calls: int, jobs: int) -> Sample:
    async def sample() -> float:
        started = time.perf_counter()
        for _ in range(calls):
            await insert(jobs)
        return calls * jobs / (time.perf_counter() - started)

    return sample
