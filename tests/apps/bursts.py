"""Short jobs that come in bursts, for machines that start on demand."""

from __future__ import annotations

from holdfast import Holdfast

hf = Holdfast()


@hf.task
async def blink() -> str:
    sum(range(200_000))  # a few milliseconds of work
    return "seen"
