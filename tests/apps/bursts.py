"""Short jobs that come in bursts, for machines that start on demand."""

from __future__ import annotations

import asyncio

from holdfast import Holdfast

hf = Holdfast()


@hf.task
async def blink() -> str:
    await asyncio.sleep(0.05)
    return "seen"
