"""What every job does, whoever runs it: nothing (`noop`), tell how late it started (`stamp`), or wait 20 ms (`nap`)."""

from __future__ import annotations

import asyncio
import time
from functools import cache

from bench.peers.tally import note, opened_by_job

NAP_SECONDS = 0.02

_file = cache(opened_by_job)


async def body(kind: str, value: float) -> None:
    if kind == "nap":
        await asyncio.sleep(NAP_SECONDS)
    _note(kind, value)


def body_sync(kind: str, value: float) -> None:
    if kind == "nap":
        time.sleep(NAP_SECONDS)
    _note(kind, value)


def _note(kind: str, value: float) -> None:
    note(_file(), time.monotonic() - value if kind == "stamp" else value)
