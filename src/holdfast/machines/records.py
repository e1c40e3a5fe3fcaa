"""What we remember of machines, in the database: whose turn it is to decide, what was asked for, what is up, what it costs."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.errors import JobNotFound
from holdfast.machines.protocol import Kind, Machine, MachineState
from holdfast.machines.reconcile import WEDGED_SECONDS, Seen
from holdfast.store.protocol import Demand, Store, Tally
from holdfast.tally import ALL_QUEUES

TURN_SECONDS = 120.0
"""A turn is kept up before each call to the provider; whoever dies in it keeps the others waiting for so long."""
TOLD_MAX = 20
BILLED = (MachineState.STARTING, MachineState.RUNNING, MachineState.STOPPING)


class Turn(msgspec.Struct, kw_only=True):
    token: str
    pool: int | None
    problem: str | None
    told: str | None
    vain_job: str | None
    vain_count: int
    vain_seconds: float | None


class Records:
    def __init__(self, store: Store, clock: DatabaseClock, provider: str) -> None:
        self._store = store
        self._clock = clock
        self._provider = provider

    def now(self) -> datetime:
        return self._clock.now() or datetime.now(UTC)

    # -- one decides at a time

    async def take_turn(self) -> Turn | None:
        """None while another process decides; it will look once more when it is through."""
        token = secrets.token_hex(8)
        row = (await self._store.shared("machine_turn_take", token, TURN_SECONDS))[0]
        return Turn(**row) if row["token"] == token else None

    async def keep_turn(self, turn: Turn) -> bool:
        return bool(await self._store.shared("machine_turn_keep", turn.token, TURN_SECONDS))

    async def leave_turn(self, turn: Turn) -> bool:
        """False: somebody asked meanwhile, so it is still our turn and there is more to decide."""
        if await self._store.shared("machine_turn_leave", turn.token):
            return True
        return not await self._store.shared("machine_turn_again", turn.token, TURN_SECONDS)

    async def drop_turn(self, turn: Turn) -> None:
        await self._store.shared("machine_turn_drop", turn.token)

    async def tell(self, turn: Turn, problem: str | None, telling: str | None) -> None:
        """What keeps machines from coming now; and what was told of which job: told once, and again by its run."""
        if telling is not None:
            turn.told = "\n".join([telling, *(turn.told or "").splitlines()][:TOLD_MAX])
        if telling is not None or problem != turn.problem:
            turn.problem = problem
            await self._store.shared("machine_turn_tell", problem, turn.told)

    async def no_problem(self, turn: Turn) -> None:
        await self.tell(turn, None, None)

    async def in_vain(self, job_id: str | None, count: int) -> None:
        await self._store.shared("machine_turn_vain", job_id, count)

    async def event(self, type_: str, about: Demand | None, data: dict[str, Any]) -> None:
        job_id, tenant = (about.oldest_id, about.tenant or None) if about else (None, None)
        if job_id is not None:
            with contextlib.suppress(JobNotFound):
                data = {**data, "run_id": (await self._store.job_get(job_id)).run_id}
        await self._store.shared("machine_event", job_id, tenant, type_, "orchestrator", msgspec.json.encode(data).decode())

    # -- machines

    async def asked(self, name: str, kind: Kind, machine_id: str | None = None) -> None:
        await self._store.shared("machine_ask", name, self._provider, machine_id, kind)

    async def refused(self, name: str) -> None:
        await self._store.shared("machine_refused", name)

    async def forget(self, name: str) -> None:
        await self._store.shared("machine_forget", name)

    async def stop_asked(self, name: str) -> None:
        await self._store.shared("machine_stop_asked", name)

    async def scale(self, pool: int) -> None:
        await self._store.shared("machine_scale", pool)

    async def look(self) -> dict[str, Any]:
        """How the pool was scaled, and what kept machines from coming."""
        found = await self._store.shared("machine_turn_look")
        return found[0] if found else {"pool": None, "problem": None, "told": None}

    async def ids(self) -> set[str]:
        """Of the machines that were there when they were last seen."""
        return {row["id"] for row in await self._store.shared("machine_list", self._provider) if row["id"]}

    async def merge(self, listed: Sequence[Machine], *, count: bool = False) -> list[Seen]:
        """The provider's list with what we remember; with `count` the list is also written down, and the time that machines
        were up is counted. What is neither listed nor asked for any more is forgotten."""
        known = {row["name"]: row for row in await self._store.shared("machine_list", self._provider)}
        seen = []
        for machine in listed:
            row = known.pop(machine.name, None)
            if count:
                await self._see(machine, row)
            if machine.state is not MachineState.GONE:
                seen.append(self._seen(machine, row))
        for name, row in known.items():
            if row["asked_at"] is not None and row["asked_seconds"] < WEDGED_SECONDS and row["stop_asked_at"] is None:
                machine = Machine(id=row["id"] or name, name=name, state=MachineState.UNKNOWN, kind=row["kind"])
                seen.append(self._seen(machine, row, listed=False))
            elif count:
                await self.forget(name)
        return seen

    def _seen(self, machine: Machine, row: dict[str, Any] | None, *, listed: bool = True) -> Seen:
        up: float | None = None
        if machine.started_at is not None:
            up = max(0.0, (self.now() - machine.started_at).total_seconds())
        elif row is not None:
            up = row["up_seconds"]
        elif machine.created_at is not None:
            up = max(0.0, (self.now() - machine.created_at).total_seconds())
        asked = row["asked_seconds"] if row else None
        stop = row["stop_asked_seconds"] if row else None
        return Seen(machine=machine, listed=listed, asked_seconds=asked, up_seconds=up, stop_asked_seconds=stop)

    async def _see(self, machine: Machine, row: dict[str, Any] | None) -> None:
        up = machine.state in BILLED
        if row is not None and row["uncounted_seconds"]:
            await self.count(f"machine:{self._provider}", 0, row["uncounted_seconds"])
            await self._store.tally_add([Tally("machine_seconds", ALL_QUEUES, machine.kind, row["uncounted_seconds"])])
        elif up:
            await self.count(f"machine:{self._provider}", 1, 0.0)
        if machine.state is MachineState.GONE:
            await self.forget(machine.name)
            return
        values = (machine.name, self._provider, machine.id, machine.kind, machine.state.value, machine.region)
        await self._store.shared("machine_see", *values, int(up), machine.started_at)

    # -- cost

    async def count(self, subject: str, n: int, seconds: float) -> None:
        await self._store.shared("machine_count", f"{self.now():%Y-%m}", subject, n, float(max(0.0, seconds)))
