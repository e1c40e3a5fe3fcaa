"""The way to the stores, played by a seed: every verb can be late, lost on either way, or somebody's last.

`Wire` is what a simulated process holds as its store.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any, NamedTuple, Protocol

from holdfast.errors import StorageUnavailable
from holdfast.store.protocol import Store, Wake
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.stores import Base, Call, Watcher, current_call, needs_no_database


class Faults(Protocol):
    """What goes wrong with one verb."""

    def on_the_way(self, call: Call) -> str | None:
        """`refused` (it never arrives), `lost` (it is carried out, the answer never arrives), `killed before`,
        `killed after` or `late`."""

    def killed(self, process: Process) -> None: ...


class Listener(NamedTuple):
    process: Process
    wake: Wake
    context: Context


class Network:
    """Wires of all processes to one database, and the wake-ups between them."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, base: Base, watcher: Watcher, faults: Faults) -> None:
        self.loop = loop
        self.rng = rng
        self.base = base
        self.watcher = watcher
        self.faults = faults
        self.listeners: list[Listener] = []
        self.pace = rng.choice((0.1, 0.3, 0.8))
        """How often a way takes a noticeable time."""

    def wire(self, process: Process) -> Store:
        wire: Any = Wire(self, process)
        store: Store = wire
        return store

    def tell(self, wakes: set[str]) -> None:
        """Hints come late or not at all, and as a rule without saying what for."""
        told = sorted(wake for wake in wakes if not wake.startswith("log:"))
        for listener in self.listeners if told else ():
            if not listener.process.alive or self.rng.random() < 0.2:
                continue
            after = self.rng.choice((0.0, 0.001, 0.05))
            for what in told if self.rng.random() < 0.5 else [""]:
                # In the listener's own context: while it is frozen it hears nothing.
                self.loop.call_later(after, self._deliver, listener, what, context=listener.context)

    def _deliver(self, listener: Listener, what: str) -> None:
        if listener in self.listeners:
            listener.wake(what)


class Wire:
    """The store as one process sees it."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._store = network.base.open(network.watcher, network.tell)
        self.name = self._store.name
        self.pooled = False

    async def listen(self, wake: Wake, *, logs: bool = False, worker: str | None = None) -> Callable[[], Awaitable[None]]:
        entry = Listener(self._process, wake, copy_context())
        self._network.listeners.append(entry)

        async def stop() -> None:
            self._network.listeners.remove(entry)

        return stop

    @property
    def listening(self) -> bool:
        return any(listener.process is self._process for listener in self._network.listeners)

    async def leave_loop(self) -> None:
        pass

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        call = Call(self._process, "transaction", (), {})
        fault = self._network.faults.on_the_way(call)
        await self._arrive(fault)
        current_call.set(call)
        async with self._store.transaction() as tx:
            yield tx
        await self._return(fault)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        if needs_no_database(verb):
            plain: Callable[..., Any] = getattr(self._store, verb)
            return plain

        async def sent(*args: Any, **options: Any) -> Any:
            return await self._send(Call(self._process, verb, args, options))

        return sent

    async def _send(self, call: Call) -> Any:
        fault = self._network.faults.on_the_way(call)
        await self._arrive(fault)
        current_call.set(call)
        answer = await getattr(self._store, call.verb)(*call.args, **call.options)
        await self._return(fault)
        return answer

    async def _arrive(self, fault: str | None) -> None:
        await self._travel(late=fault == "late")
        if fault == "refused":
            raise StorageUnavailable("The database is away (simulated).")
        if fault == "killed before":
            await self._die()

    async def _return(self, fault: str | None) -> None:
        if fault == "killed after":
            await self._die()
        await self._travel(late=False)
        if fault == "lost":
            raise StorageUnavailable("The answer was lost on the way (simulated).")

    async def _travel(self, *, late: bool) -> None:
        rng = self._network.rng
        drawn = rng.random()
        if late:
            await asyncio.sleep(rng.uniform(1.0, 30.0))
        elif drawn < self._network.pace:
            await asyncio.sleep(rng.choice((0.001, 0.01, 0.2)))

    async def _die(self) -> None:
        self._network.faults.killed(self._process)
        await asyncio.get_running_loop().create_future()
