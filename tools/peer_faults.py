"""The faults that every queue meets: planned by a seed beforehand, so that all meet the same ones at the same seconds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import psycopg

from bench.peers.processes import Workers
from tests.support.postgres import OwnServer
from tools.chaos_wire import Wire

KINDS = ("kill", "kill", "freeze", "crash_database", "terminate_backends", "cut_wire", "delay_wire", "half_open_wire")


class Fault(NamedTuple):
    at: float
    """Seconds after the start."""
    kind: str
    worker: int
    part: float
    """How long or how much, between 0 and 1: each kind has its own measure."""


def planned(seed: int, seconds: float, workers: int) -> list[Fault]:
    """Each kind at least once, where there is time; then by chance."""
    rng = random.Random(seed)
    kinds = list(KINDS)
    rng.shuffle(kinds)
    found, at = list[Fault](), 0.0
    while (at := at + rng.uniform(1, 4)) < seconds:
        kind = kinds.pop() if kinds else rng.choice(KINDS)
        found.append(Fault(at, kind, rng.randrange(workers), rng.random()))
    return found


class Faults:
    def __init__(self, workers: Workers, server: OwnServer, wire: Wire, count: int) -> None:
        self._workers = workers
        self._server = server
        self._wire = wire
        self._count = count
        self._beside: set[asyncio.Task[None]] = set()
        self.ended_by_themselves = 0

    async def run(self, plan: list[Fault]) -> None:
        began = time.monotonic()
        for fault in plan:
            while (left := began + fault.at - time.monotonic()) > 0:
                await self.start_again()
                await asyncio.sleep(min(0.2, left))
            action: Callable[[Fault], Awaitable[None]] = getattr(self, f"_{fault.kind}")
            await action(fault)
        await asyncio.gather(*self._beside)

    async def start_again(self) -> None:
        """Whatever has ended, as any supervisor does; one that found no database at its start has not ended by itself."""
        for number in range(self._count):
            child = self._workers[number]
            if child.ended:
                self.ended_by_themselves += await child.had_begun()
                await child.kill()
                await self._workers.begin(number)

    async def _kill(self, fault: Fault) -> None:
        await self._workers.kill(fault.worker)
        await self._workers.begin(fault.worker)

    async def _freeze(self, fault: Fault) -> None:
        """For up to eight seconds: leases and heartbeats of all queues last five."""
        victim = self._workers[fault.worker]
        victim.freeze()
        self._meanwhile(_later(1 + 7 * fault.part, victim.thaw))

    async def _crash_database(self, fault: Fault) -> None:
        await asyncio.to_thread(self._server.stop, "immediate")
        await asyncio.sleep(2 * fault.part)
        await asyncio.to_thread(self._server.start)

    async def _terminate_backends(self, fault: Fault) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as admin:
            admin.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT %s""",
                [1000 if fault.part > 0.5 else 2],
            )

    async def _cut_wire(self, fault: Fault) -> None:
        self._wire.cut()

    async def _delay_wire(self, fault: Fault) -> None:
        self._meanwhile(self._wire.delay(0.2 + 2 * fault.part))

    async def _half_open_wire(self, fault: Fault) -> None:
        self._meanwhile(self._wire.half_open(0.5 + 5 * fault.part))

    def _meanwhile(self, trouble: Awaitable[None]) -> None:
        task = asyncio.ensure_future(trouble)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)


async def _later(seconds: float, call: Callable[[], None]) -> None:
    await asyncio.sleep(seconds)
    call()
