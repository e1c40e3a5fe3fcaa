"""A schedule in code and a batch, for tests with real processes."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast(poll_idle=1, reaper_interval=1, lease=3, heartbeat=1, backoff_base=0.1)


@hf.every(1, name="tick")
async def beat() -> None: ...


@hf.task(max_attempts=5)
async def part(n: int) -> int:
    return n


@hf.task
async def total() -> str:
    return "all done"
