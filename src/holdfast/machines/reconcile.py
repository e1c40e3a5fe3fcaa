"""How many machines are needed, and which: pure. Demand, workers, machines and limits in; what to do out.

A machine is needed for work that nobody serves, and for work that has waited too long although somebody does. What the limits
of tenants and queues do not let run needs none. Machines that are on their way count as if they were there already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.machines.protocol import Kind, Machine, MachineState
from holdfast.store.protocol import Demand, WorkerRow

STARTS_MAX = 5
"""Machines that one pass starts at the most."""
LIST_LAG_SECONDS = 15.0
"""A provider's list may still say that a machine is down for this long after it was asked to start, unless told otherwise."""
WEDGED_SECONDS = 600.0
"""What has been starting or stopping for longer than this never will."""
STOP_SECONDS = 120.0
"""How long a machine that was asked to stop may take, beside the grace period of its worker, before it is destroyed."""
UP = (MachineState.STARTING, MachineState.RUNNING, MachineState.STOPPING, MachineState.UNKNOWN)
"""What costs money and counts towards the maximum. A state that we do not understand is among them: it is no reason to make
another machine."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    pool: int
    """How many machines are kept, stopped, for the next time; those above are made for a rush."""
    most: int
    slots: int
    """Jobs that one machine runs at a time."""
    wait: float
    """How long a job may wait before a machine comes to the help of workers that are there."""
    boot: float
    """How long a machine may take from its start until its worker asks for work."""
    lifetime: float
    grace: float
    lag: float = LIST_LAG_SECONDS
    poll: float
    """How long a live worker with a free slot may take to look for work; who takes longer is not believed to be there."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, with what we remember of it."""

    machine: Machine
    listed: bool = True
    """False: we asked for it, and the provider's list does not name it."""
    asked_seconds: float | None = None
    """Since we last made or started it."""
    up_seconds: float | None = None
    stop_asked_seconds: float | None = None


class Start(NamedTuple):
    machine: Machine


class Create(NamedTuple):
    kind: Kind
    name: str | None = None
    """Of a machine that was asked for before, and whose answer was lost: a name is never doubled."""


class Decision(msgspec.Struct, kw_only=True):
    needed: int = 0
    """Machines that the work asks for, beside those that are there or on their way."""
    start: int = 0
    """How many of them may be started now."""
    candidates: list[Start | Create] = []
    """In the order in which they are tried, until so many have started."""
    stop: list[Machine] = []
    destroy: list[Machine] = []
    at_maximum: bool = False
    oldest: Demand | None = None
    """The job that has waited longest of those that machines are needed for."""
    unserved: bool = False
    """Whether nobody at all serves that job."""


def gone(known: set[str], machines: Sequence[Seen], limits: Limits) -> set[str]:
    """The ids of those that are down for certain, with what `known` ones the provider does not have any more."""
    there = {seen.machine.id for seen in machines}
    return (known - there) | {seen.machine.id for seen in machines if seen.listed and _is_down(seen, limits)}


def decide(demand: Sequence[Demand], workers: Sequence[WorkerRow], machines: Sequence[Seen], limits: Limits) -> Decision:
    """`workers`: those that are alive."""
    down = gone(set(), machines, limits)
    workers = [worker for worker in workers if worker.machine_id not in down]
    slots, oldest, unserved = _missing_slots(demand, [worker for worker in workers if not worker.draining], limits)
    decision = Decision(oldest=oldest, unserved=unserved)
    _end_old_ones(decision, machines, limits)
    with_worker = {worker.machine_id for worker in workers if worker.machine_id}
    coming = sum(_is_coming(seen, with_worker, limits) for seen in machines)
    decision.needed = max(0, math.ceil(slots / limits.slots) - coming)
    there = sum(_counts(seen, limits) for seen in machines)
    decision.start = max(0, min(decision.needed, limits.most - there, STARTS_MAX))
    decision.at_maximum = decision.needed > 0 and there >= limits.most
    if decision.start:
        decision.candidates = _candidates(decision, machines, limits, limits.most - there)
    return decision


# -- demand


def _missing_slots(demand: Sequence[Demand], workers: Sequence[WorkerRow], limits: Limits) -> tuple[int, Demand | None, bool]:
    """Slots that are missing, the job that has waited longest for one, and whether nobody serves that job."""
    known = {(queue, task) for worker in workers for queue in worker.queues for task in worker.tasks}
    free = {worker.id: max(0, worker.concurrency - worker.running) for worker in workers}
    missing = 0
    waiting: list[tuple[bool, float, Demand]] = []
    for queue, rows in _by(demand, lambda row: row.queue).items():
        late = [row for row in rows if (queue, row.task) in known and row.oldest_seconds >= limits.wait]
        # Free slots that leave work waiting for so long are not there: their worker has died, and is not yet missed.
        left = [row for row in late if row.oldest_seconds >= limits.wait + limits.poll]
        late = [row for row in late if row not in left]
        strange = [row for row in rows if (queue, row.task) not in known]
        unserved, waits = _may_run(rows, [*strange, *left], late)
        helpless = waits - _take_free(free, [worker for worker in workers if queue in worker.queues], waits)
        missing += unserved + helpless
        waiting += [(True, row.oldest_seconds, row) for row in strange if unserved]
        waiting += [(False, row.oldest_seconds, row) for row in left if unserved]
        waiting += [(False, row.oldest_seconds, row) for row in late if helpless]
    if not missing or not waiting:
        return 0, None, False
    nobody, _, row = max(waiting, key=lambda one: one[:2])
    return missing, row, nobody


def _may_run(rows: Sequence[Demand], strange: Sequence[Demand], late: Sequence[Demand]) -> tuple[int, int]:
    """How many jobs of a queue its limit and its tenants' limits let run now: those that nobody serves, and the late ones."""
    unserved = waits = 0
    for tenant, lane in _by(rows, lambda row: row.tenant).items():
        nobody = sum(row.waiting for row in strange if row.tenant == tenant)
        somebody = sum(row.waiting for row in late if row.tenant == tenant)
        room = min((row.room for row in lane if row.room is not None), default=nobody + somebody)
        nobody = min(nobody, room)
        unserved += nobody
        waits += min(somebody, room - nobody)
    room = min((row.queue_room for row in rows if row.queue_room is not None), default=unserved + waits)
    unserved = min(unserved, room)
    return unserved, min(waits, room - unserved)


def _take_free(free: dict[str, int], workers: Sequence[WorkerRow], wanted: int) -> int:
    """Each free slot of a worker serves one of its queues only."""
    taken = 0
    for worker in workers:
        n = min(free[worker.id], wanted - taken)
        free[worker.id] -= n
        taken += n
    return taken


def _by(rows: Sequence[Demand], key: Callable[[Demand], str]) -> dict[str, list[Demand]]:
    found: dict[str, list[Demand]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


# -- machines


def _just_asked(seen: Seen, seconds: float) -> bool:
    return seen.asked_seconds is not None and seen.asked_seconds < seconds and seen.stop_asked_seconds is None


def _is_coming(seen: Seen, with_worker: set[str], limits: Limits) -> bool:
    """On its way: asked for or up, and its worker has not said a word yet. One that takes too long is not counted on."""
    machine = seen.machine
    if not machine.reachable or machine.id in with_worker or machine.name in with_worker or seen.stop_asked_seconds is not None:
        return False
    if not seen.listed or machine.state is MachineState.STOPPED:
        return _just_asked(seen, limits.lag if seen.listed else limits.boot)
    if machine.state in (MachineState.STARTING, MachineState.RUNNING):
        since = [seconds for seconds in (seen.asked_seconds, seen.up_seconds) if seconds is not None]
        return min(since, default=0.0) < limits.boot
    return False


def _is_down(seen: Seen, limits: Limits) -> bool:
    """For certain; a list may lag behind a start."""
    down = seen.machine.state in (MachineState.STOPPED, MachineState.GONE)
    return down and not _just_asked(seen, limits.lag)


def _counts(seen: Seen, limits: Limits) -> bool:
    """Towards the maximum. One that was lost does not: it is the first to be tried again, under its own name."""
    if not seen.machine.reachable:
        return False
    if not seen.listed:
        return _just_asked(seen, limits.boot)
    return seen.machine.state in UP or (seen.machine.state is MachineState.STOPPED and _just_asked(seen, limits.lag))


def _candidates(decision: Decision, machines: Sequence[Seen], limits: Limits, room: int) -> list[Start | Create]:
    """Lost ones first, for they may well be up; then the pool; then new ones, of which the pool gets its share."""
    lost: list[Start | Create] = [
        Create(seen.machine.kind, seen.machine.name)
        for seen in machines
        if not seen.listed and seen.asked_seconds is not None and limits.boot <= seen.asked_seconds < WEDGED_SECONDS
    ]
    startable: list[Start | Create] = [Start(seen.machine) for seen in machines if _can_start(seen, decision, limits)]
    pool = sum(
        seen.machine.kind == "pool" and seen.machine.state is not MachineState.GONE
        for seen in machines
        if seen.listed or _counts(seen, limits)
    )
    new = min(decision.start, room)
    made: list[Start | Create] = [Create("pool" if pool + number < limits.pool else "burst") for number in range(new)]
    return [*lost, *startable, *made]


def _can_start(seen: Seen, decision: Decision, limits: Limits) -> bool:
    machine = seen.machine
    down = machine.state is MachineState.STOPPED and not _just_asked(seen, limits.lag)
    return seen.listed and machine.reachable and down and machine.kind == "pool" and machine not in decision.destroy


def _end_old_ones(decision: Decision, machines: Sequence[Seen], limits: Limits) -> None:
    """Their workers end them in time. Where that fails they are stopped, and where that fails too they are destroyed."""
    for seen in machines:
        machine = seen.machine
        if not seen.listed or machine.state is MachineState.GONE:
            continue
        since = [seconds for seconds in (seen.asked_seconds, seen.up_seconds) if seconds is not None]
        age = min(since, default=0.0)
        stuck = machine.state in (MachineState.STARTING, MachineState.STOPPING) and age > WEDGED_SECONDS
        ignored = seen.stop_asked_seconds is not None and seen.stop_asked_seconds > limits.grace + STOP_SECONDS
        if machine.state is MachineState.STOPPED:
            if machine.kind == "burst" and age > limits.boot:
                decision.destroy.append(machine)  # it should have removed itself
        elif ignored or (stuck and seen.stop_asked_seconds is None):
            decision.destroy.append(machine)
        elif age > limits.lifetime + limits.grace and seen.stop_asked_seconds is None and machine.state is MachineState.RUNNING:
            decision.stop.append(machine)
