"""A process in the environment of one queue: says that it is ready, waits for a line, does its part, answers by a line of JSON.

`python -m bench.peers.child QUEUE URL PART ARGUMENTS…`; imports nothing that the queue's own environment may lack.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import random
import sys
import time
from typing import Any

from bench.peers.tally import note

BATCH = 1000
CALL_SECONDS = 5.0


async def describe(module: Any, queue: Any) -> dict[str, Any]:
    names = ("VERSION", "SETTINGS", "RESCUE", "DRAIN_JOBS", "UNFINISHED", "COPY")
    about = {name.lower(): getattr(module, name) for name in names}
    return {**about, "batches": hasattr(module.Queue, "enqueue_many")}


async def setup(module: Any, queue: Any) -> None:
    await queue.setup()


async def one(module: Any, queue: Any, seconds: str) -> dict[str, float]:
    """One by one, for so long."""
    began, jobs = time.monotonic(), 0
    while (taken := time.monotonic() - began) < float(seconds):
        await queue.enqueue_one("noop", jobs)
        jobs += 1
    return {"jobs": jobs, "seconds": taken}


async def many(module: Any, queue: Any, seconds: str) -> dict[str, float]:
    """In calls of a thousand, for so long."""
    began, jobs = time.monotonic(), 0
    while (taken := time.monotonic() - began) < float(seconds):
        await queue.enqueue_many("noop", list(range(jobs, jobs + BATCH)))
        jobs += BATCH
    return {"jobs": jobs, "seconds": taken}


async def fill(module: Any, queue: Any, kind: str, jobs: str) -> None:
    numbers = list(range(int(jobs)))
    if hasattr(queue, "enqueue_many"):
        for start in range(0, len(numbers), BATCH):
            await queue.enqueue_many(kind, numbers[start : start + BATCH])
        return
    for number in numbers:
        await queue.enqueue_one(kind, number)


async def pace(module: Any, queue: Any, kind: str, per_second: str, seconds: str) -> dict[str, float]:
    """At random moments: even steps would meet a poller at the same point of its interval each time."""
    rng, began, due, jobs = random.Random(1), time.monotonic(), 0.0, 0
    while (due := due + rng.expovariate(float(per_second))) < float(seconds):
        await asyncio.sleep(max(0.0, began + due - time.monotonic()))
        if time.monotonic() - began > 1.5 * float(seconds):
            break
        await queue.enqueue_one(kind, time.monotonic())
        jobs += 1
    return {"jobs": jobs, "seconds": time.monotonic() - began}


async def produce(module: Any, queue: Any, per_second: str, seconds: str, acknowledged: str) -> dict[str, int]:
    """Through whatever happens; a number is noted down when its call has come back, and one that raised is not sent again."""
    file, began, number, refused = os.open(acknowledged, os.O_WRONLY | os.O_APPEND), time.monotonic(), 0, 0
    while (now := time.monotonic() - began) < float(seconds):
        if number > now * float(per_second):
            await asyncio.sleep(0.01)
            continue
        number += 1
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await queue.enqueue_one("nap", number)
            note(file, number)
        except Exception:
            refused += 1
    return {"sent": number, "refused": refused}


async def work(module: Any, queue: Any, how: str) -> None:
    await queue.work(gentle=how == "gentle")


PARTS = {part.__name__: part for part in (describe, setup, one, many, fill, pace, produce, work)}


async def _take_part(answers: Any) -> Any:
    name, url, part, *arguments = sys.argv[1:]
    module = importlib.import_module(f"bench.peers.queues.{name}")
    queue = None
    if part != "describe":
        queue = module.Queue(url)
        await queue.open()
    print("ready", file=answers, flush=True)
    sys.stdin.readline()
    return await PARTS[part](module, queue, *arguments)


def main() -> None:
    # What a queue prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.WARNING)
    try:
        loop_factory: Any = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        loop_factory = None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        answer = runner.run(_take_part(answers))
        print(json.dumps(answer), file=answers, flush=True)
        os._exit(0)  # threads and pools of a queue that would not end are no part of the measurement


if __name__ == "__main__":
    main()
