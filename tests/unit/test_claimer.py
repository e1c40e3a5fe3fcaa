"""How a worker asks for jobs while its database refuses."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NoReturn

from holdfast.claim import QueueOrder
from holdfast.errors import StorageUnavailable
from holdfast.processes.claimer import Claimer
from holdfast.settings import Settings

TRIES = 6


async def test_a_claimer_that_each_failure_wakes_does_not_ask_without_a_pause() -> None:
    """A full disk makes an SQLite file look changed after each failure; that must not become a loop at full speed."""
    moments: list[float] = []

    async def refuse(**claim: Any) -> NoReturn:
        moments.append(time.monotonic())
        if len(moments) == TRIES:
            claimer.stop()
        asyncio.get_running_loop().call_soon(claimer.look_everywhere)
        raise StorageUnavailable("The disk is full.")

    async def nothing(worker: str) -> list[Any]:
        return []

    store = SimpleNamespace(job_claim=refuse, lease_list=nothing, listening=True)
    body: Any = SimpleNamespace(
        id="w",
        store=store,
        settings=Settings(),
        busy_slots=0,
        waiting_jobs=0,
        outcomes_are_stuck=False,
        is_busy=lambda: False,
        give_back_unknown=len,
    )
    claimer = Claimer(body, machine_id=None, order=QueueOrder(["default"]), tasks=["work"], concurrency=1, exit_when_idle=None)
    async with asyncio.timeout(60):
        await claimer.run()
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert all(pause > 0.8 * 0.2 / 5 for pause in pauses) and sum(pauses) > 0.9
