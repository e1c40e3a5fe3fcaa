"""A machine provider that runs in the test and misbehaves as told: down, slow, answers that get lost, lists that lag behind.

A machine that starts gets a real worker in this process, unless the test says that it dies or never comes up.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import msgspec

from holdfast import Holdfast
from holdfast.clock import DatabaseClock
from holdfast.machines.protocol import Kind, Machine, MachineState, ProviderDown, StartRefused

Hook = Callable[[str], Awaitable[None]]


class FakeProvider:
    name = "local"

    def __init__(self, clock: DatabaseClock | None = None) -> None:
        self._clock = clock or DatabaseClock()
        self.machines: dict[str, Machine] = {}
        self.calls: list[tuple[str, str]] = []
        """Every call as (verb, name), also those that failed."""
        self.failing: dict[str, list[Exception]] = {}
        """Verb -> what its next calls raise, before anything is done; the last one stays."""
        self.refused: set[str] = set()
        """Machines that cannot be started."""
        self.loses_answers = False
        """Whether create and start do their work and then fail."""
        self.hidden: set[str] = set()
        """Names that the list does not show yet."""
        self.gate: asyncio.Event | None = None
        """Calls wait for it: a slow provider."""
        self.on_start: Hook | None = None
        """Life of the machine; when it returns, the machine has ended."""
        self.most_up = 0
        self._lives: set[asyncio.Task[None]] = set()

    def now(self) -> datetime:
        return self._clock.now() or datetime.now(UTC)

    def add(self, name: str, state: MachineState = MachineState.STOPPED, kind: Kind = "pool", **fields: object) -> Machine:
        self.machines[name] = machine = Machine(id=name, name=name, state=state, kind=kind, **fields)  # type: ignore[arg-type]
        return machine

    def set(self, name: str, state: MachineState) -> None:
        started = self.now() if state is MachineState.RUNNING else self.machines[name].started_at
        self.machines[name] = msgspec.structs.replace(self.machines[name], state=state, started_at=started)
        self.most_up = max(self.most_up, len(self.up()))

    def up(self) -> list[str]:
        down = (MachineState.STOPPED, MachineState.GONE)
        return [machine.name for machine in self.machines.values() if machine.state not in down]

    def called(self, *verbs: str) -> list[str]:
        return [name for verb, name in self.calls if verb in verbs]

    # -- the provider

    async def list(self) -> list[Machine]:
        await self._call("list", "")
        return [machine for machine in self.machines.values() if machine.name not in self.hidden]

    async def create(self, name: str, kind: Kind) -> Machine:
        await self._call("create", name)
        if name not in self.machines:
            self.add(name, kind=kind, created_at=self.now())
            self._start(name)
        self._lose_answer()
        return self.machines[name]

    async def start(self, machine_id: str) -> None:
        await self._call("start", machine_id)
        if machine_id in self.refused:
            raise StartRefused(f"{machine_id} cannot be started")
        if self.machines[machine_id].state is MachineState.STOPPED:
            self._start(machine_id)
        self._lose_answer()

    async def stop(self, machine_id: str) -> None:
        await self._call("stop", machine_id)

    async def destroy(self, machine_id: str) -> None:
        await self._call("destroy", machine_id)
        self.machines.pop(machine_id, None)

    async def aclose(self) -> None:
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)

    # -- inside

    async def _call(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if self.gate is not None:
            await self.gate.wait()
        raised = self.failing.get(verb)
        if raised:
            raise raised.pop(0) if len(raised) > 1 else raised[0]

    def _lose_answer(self) -> None:
        if self.loses_answers:
            raise ProviderDown("the answer was lost on the way")

    def _start(self, name: str) -> None:
        self.set(name, MachineState.RUNNING)
        if self.on_start is not None:
            life = asyncio.get_running_loop().create_task(self._live(name, self.on_start))
            self._lives.add(life)
            life.add_done_callback(self._lives.discard)

    async def _live(self, name: str, hook: Hook) -> None:
        await hook(name)
        if self.machines[name].kind == "burst":
            del self.machines[name]
        else:
            self.set(name, MachineState.STOPPED)


def with_worker(hf: Holdfast, *, concurrency: int = 1, exit_when_idle: float = 0.0) -> Hook:
    """A machine on which a worker runs until it has nothing to do."""

    async def live(name: str) -> None:
        before = os.environ.get("HOLDFAST_MACHINE_ID")
        os.environ["HOLDFAST_MACHINE_ID"] = name
        try:
            worker = hf.worker(concurrency=concurrency, exit_when_idle=exit_when_idle, reap=False)
        finally:
            if before is None:
                del os.environ["HOLDFAST_MACHINE_ID"]
            else:
                os.environ["HOLDFAST_MACHINE_ID"] = before
        await worker.run()

    return live
