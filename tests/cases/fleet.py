"""An application with a provider of machines that the test steers, and a clock that it moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from holdfast import Holdfast, Job, State
from holdfast.clock import ManualClock
from holdfast.processes.orchestrator import Orchestrator
from holdfast.store.protocol import WorkerRow
from tests.cases.steps import PATIENCE_SECONDS
from tests.support.machines import FakeProvider


class Fleet:
    """An application with a provider of the test's own; each machine runs one job at a time."""

    def __init__(self, hf: Holdfast, provider: FakeProvider, clock: ManualClock) -> None:
        self.hf, self.provider, self.clock = hf, provider, clock
        self.orchestrator: Orchestrator = hf.machines.use(provider)

        @hf.task
        async def work() -> str:
            return "done"

        self.work = work

    async def enqueue(self, count: int = 1, **options: Any) -> list[Job[Any]]:
        jobs = [await self.work.options(**options).enqueue() for _ in range(count)]
        await self.asked()
        return jobs

    async def asked(self) -> None:
        """What enqueues have asked for in the background is done."""
        asking = self.orchestrator._asking
        if asking is not None:
            await asyncio.wait_for(asking, PATIENCE_SECONDS)

    async def states(self, jobs: list[Job[Any]]) -> set[State]:
        return {(await self.hf.get(job.id)).state for job in jobs}

    async def event_types(self) -> list[str]:
        return [event.type for event in await self.hf.events() if event.type.startswith("machine.")]

    def starts(self) -> list[str]:
        return self.provider.called("start", "create")

    async def worker_row(self, machine: str, **fields: Any) -> None:
        known = {"host": "h", "pid": 1, "version": "0", "queues": ["default"], "tasks": ["work"], "concurrency": 1}
        await self.hf.store.worker_save(WorkerRow(**{**known, "id": f"w-{machine}", "machine_id": machine, **fields}))


async def make_fleet(url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    app = another(url, clock)
    yield Fleet(app, FakeProvider(clock), clock)
    await app.aclose()


def another(url: str, clock: ManualClock, **settings: Any) -> Holdfast:
    usual = {"machine_provider": "local", "machine_concurrency": 1, "machine_pool": 2, "machine_max": 5}
    return Holdfast(url, clock=clock, **{**usual, **settings})
