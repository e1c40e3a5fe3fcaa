"""How many machines are needed, and which: the pure part, by example and by chance."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.machines.protocol import Kind, Machine, MachineState
from holdfast.machines.reconcile import STARTS_MAX, UP, Create, Decision, Limits, Seen, Start, decide
from holdfast.store.protocol import Demand, WorkerRow


def limits(**fields: Any) -> Limits:
    usual = {"pool": 2, "most": 5, "slots": 1, "wait": 5.0, "boot": 60.0, "lifetime": 14_400.0, "grace": 30.0, "poll": 15.0}
    return Limits(**{**usual, **fields})


def waits(n: int = 1, *, queue: str = "q", tenant: str = "", task: str = "t", age: float = 0.0, **rooms: Any) -> Demand:
    return Demand(queue, tenant, task, n, age, f"job-of-{queue}-{tenant}-{task}", **rooms)


def seen(name: str = "m", state: MachineState = MachineState.RUNNING, kind: Kind = "pool", **fields: Any) -> Seen:
    reachable = fields.pop("reachable", True)
    return Seen(machine=Machine(id=name, name=name, state=state, kind=kind, reachable=reachable), **fields)


def worker(machine: str | None = None, *, running: int = 0, concurrency: int = 1, **fields: Any) -> WorkerRow:
    usual = {"host": "h", "pid": 1, "version": "0", "queues": ["q"], "tasks": ["t"], "id": f"w-{machine}"}
    return WorkerRow(**{**usual, "machine_id": machine, "running": running, "concurrency": concurrency, **fields})


def needed(*demand: Demand, workers: list[WorkerRow] | None = None, machines: list[Seen] | None = None, **fields: Any) -> int:
    return decide(demand, workers or [], machines or [], limits(most=1_000, **fields)).needed


# -- demand


def test_work_that_nobody_serves_needs_machines_at_once() -> None:
    """One for each job, or for as many as a machine runs at a time."""
    assert needed(waits(7)) == 7
    assert needed(waits(7), slots=3) == 3
    assert needed() == 0


def test_limits_of_tenants_and_queues_bound_what_is_needed() -> None:
    """What may not run needs no machine, whichever limit forbids it."""
    assert needed(waits(10, tenant="free", room=1)) == 1
    assert needed(waits(10, tenant="a", room=1), waits(10, tenant="b", room=3)) == 4
    assert needed(waits(10, tenant="a", room=3), waits(10, tenant="a", room=3, task="u")) == 3
    assert needed(waits(10, tenant="a", room=9, queue_room=2), waits(10, tenant="b", room=9, queue_room=2)) == 2


def test_work_that_is_served_needs_more_only_after_a_while() -> None:
    """Then as many as the free slots of its workers do not hold."""
    busy = [worker("m", running=1)]
    assert needed(waits(3, age=4.9), workers=busy) == 0
    assert needed(waits(3, age=5.0), workers=busy) == 3
    assert needed(waits(3, age=9.0), workers=[worker("m", concurrency=2)]) == 1


def test_a_worker_that_died_is_not_counted_on_although_its_row_is_still_there() -> None:
    """Its machine is down; or it leaves work waiting for longer than any live worker would."""
    row = worker("m", concurrency=9)
    assert needed(waits(2), workers=[row], machines=[seen("m", MachineState.STOPPED)]) == 2
    assert needed(waits(2), workers=[row], machines=[seen("m", MachineState.STOPPED, asked_seconds=1.0)]) == 0
    assert needed(waits(2, age=19.0), workers=[row]) == 0
    assert needed(waits(2, age=21.0), workers=[row]) == 2


def test_a_free_slot_serves_one_queue_only() -> None:
    """A worker of two queues does not count twice."""
    both = [worker("m", queues=["q", "r"], concurrency=3)]
    assert needed(waits(3, age=9.0), waits(3, queue="r", age=9.0), workers=both) == 3


def test_a_worker_that_drains_or_knows_other_tasks_serves_nothing() -> None:
    """Nor does one of another queue."""
    assert needed(waits(1), workers=[worker("m", draining=True)]) == 1
    assert needed(waits(1), workers=[worker("m", tasks=["other"])]) == 1
    assert needed(waits(1), workers=[worker("m", queues=["other"])]) == 1


def test_the_decision_names_the_job_that_waits_longest_for_somebody() -> None:
    """One that nobody serves comes before one that is only late."""
    rows = [waits(1, task="late", age=90.0), waits(1, task="t", age=8.0)]
    decision = decide(rows, [worker("m", tasks=["late"], running=1)], [], limits())
    assert decision.oldest is rows[1] and decision.unserved


# -- machines


def test_machines_on_their_way_are_counted() -> None:
    """Those that start, those that are up without a worker, those that the list does not show; not those that take too long."""
    starting = seen("a", MachineState.STARTING)
    silent = seen("b", asked_seconds=50.0, up_seconds=45.0)
    hidden = seen("c", MachineState.UNKNOWN, listed=False, asked_seconds=50.0)
    still_down = seen("d", MachineState.STOPPED, asked_seconds=10.0)
    assert needed(waits(5), machines=[starting, silent, hidden, still_down]) == 1
    lost = seen("b", asked_seconds=70.0, up_seconds=70.0)
    ending = seen("e", asked_seconds=10.0, stop_asked_seconds=1.0)
    assert needed(waits(5), machines=[lost, ending]) == 5
    assert needed(waits(5), machines=[silent], workers=[worker("b", tasks=["other"])]) == 5


def tried(decision: Decision) -> list[str]:
    return [one.machine.name if isinstance(one, Start) else one.name or one.kind for one in decision.candidates]


def test_the_pool_is_tried_first_then_new_ones() -> None:
    """New ones fill the pool before they are made for the rush."""
    pool = [seen("a", MachineState.STOPPED), seen("b", MachineState.RUNNING)]
    workers = [worker("b", running=1)]
    assert tried(decide([waits(3, age=9.0)], workers, pool, limits(pool=3))) == ["a", "pool", "burst", "burst"]
    assert decide([waits(3, age=9.0)], workers, pool, limits(pool=3)).start == 3


def test_a_name_whose_answer_was_lost_is_tried_before_a_new_one() -> None:
    """Once it has had the time to come up; until then it counts as one that is there."""
    lost = seen("burst-1", MachineState.UNKNOWN, "burst", listed=False, asked_seconds=70.0)
    assert tried(decide([waits(1)], [], [lost], limits()))[0] == "burst-1"
    asked = seen("burst-1", MachineState.UNKNOWN, "burst", listed=False, asked_seconds=50.0)
    full = decide([waits(2)], [], [asked], limits(most=1))
    assert (full.start, full.at_maximum) == (0, True)


def test_what_cannot_be_reached_is_neither_started_nor_counted() -> None:
    """Its host does not answer."""
    lost = seen("a", MachineState.STOPPED, reachable=False)
    assert tried(decide([waits(1)], [], [lost], limits(pool=1))) == ["burst"]


def test_machines_end_in_time_one_step_after_the_other() -> None:
    """Stopped when they are too old, destroyed when they do not stop; a wedged one is destroyed."""
    old = seen("old", up_seconds=14_431.0)
    deaf = seen("deaf", up_seconds=15_000.0, stop_asked_seconds=151.0)
    polite = seen("polite", up_seconds=15_000.0, stop_asked_seconds=100.0)
    wedged = seen("wedged", MachineState.STARTING, asked_seconds=601.0)
    left = seen("left", MachineState.STOPPED, "burst", up_seconds=100.0)
    young = seen("young", up_seconds=14_000.0)
    decision = decide([], [], [old, deaf, polite, wedged, left, young], limits())
    assert [machine.name for machine in decision.stop] == ["old"]
    assert [machine.name for machine in decision.destroy] == ["deaf", "wedged", "left"]


# -- by chance

seconds = st.one_of(st.none(), st.floats(0, 20_000))
rooms = st.one_of(st.none(), st.integers(0, 20))
demands = st.lists(
    st.builds(
        lambda queue, tenant, task, n, age, room, queue_room: Demand(queue, tenant, task, n, age, "id", room, queue_room),
        st.sampled_from("qr"),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from("tu"),
        st.integers(1, 50),
        st.floats(0, 100),
        rooms,
        rooms,
    ),
    max_size=8,
)
fleets = st.lists(
    st.builds(
        lambda name, state, kind, listed, asked, up, stop, reachable: seen(
            name,
            state,
            kind,
            listed=listed,
            asked_seconds=asked,
            up_seconds=up,
            stop_asked_seconds=stop,
            reachable=reachable,
        ),
        st.text("abcdefgh", min_size=3, max_size=3),
        st.sampled_from(list(MachineState)),
        st.sampled_from(["pool", "burst"]),
        st.booleans(),
        seconds,
        seconds,
        seconds,
        st.booleans(),
    ),
    max_size=10,
    unique_by=lambda one: one.machine.name,
)
crews = st.lists(
    st.builds(
        lambda no, queues, tasks, size, running, draining: worker(
            f"m{no}", id=f"w{no}", queues=queues, tasks=tasks, concurrency=size, running=running, draining=draining
        ),
        st.integers(0, 1_000),
        st.lists(st.sampled_from("qr"), min_size=1, max_size=2, unique=True),
        st.lists(st.sampled_from("tu"), min_size=1, max_size=2, unique=True),
        st.integers(1, 5),
        st.integers(0, 7),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda one: one.id,
)
some_limits = st.builds(
    lambda pool, most, slots: limits(pool=pool, most=most, slots=slots), st.integers(0, 5), st.integers(1, 8), st.integers(1, 4)
)


@settings(derandomize=True, deadline=None)
@given(demands, crews, fleets, some_limits)
def test_whatever_there_is_the_maximum_and_the_pass_limit_hold(
    demand: list[Demand], workers: list[WorkerRow], machines: list[Seen], given_limits: Limits
) -> None:
    """Never more up than the maximum, never more than five a pass, nothing started that runs."""
    decision = decide(demand, workers, machines, given_limits)
    up = sum(one.listed and one.machine.reachable and one.machine.state in UP for one in machines)
    assert 0 <= decision.start <= min(STARTS_MAX, decision.needed)
    assert decision.start == 0 or up + decision.start <= given_limits.most
    assert sum(isinstance(one, Create) and one.name is None for one in decision.candidates) <= decision.start
    for candidate in decision.candidates:
        if isinstance(candidate, Start):
            assert candidate.machine.state is MachineState.STOPPED and candidate.machine.reachable
            assert candidate.machine not in decision.destroy
    assert not {one.name for one in decision.stop} & {one.name for one in decision.destroy}


@settings(derandomize=True, deadline=None)
@given(demands, crews, fleets, some_limits)
def test_whatever_there_is_no_more_is_needed_than_may_run(
    demand: list[Demand], workers: list[WorkerRow], machines: list[Seen], given_limits: Limits
) -> None:
    """Nor less than nothing; and without demand nothing is."""
    decision = decide(demand, workers, machines, given_limits)
    assert 0 <= decision.needed <= sum(row.waiting for row in demand)
    assert (decision.oldest is None) or decision.oldest in demand
    assert decide([], workers, machines, given_limits).needed == 0


@settings(derandomize=True, deadline=None)
@given(demands, crews, fleets, some_limits)
def test_whatever_there_is_another_worker_never_raises_the_need(
    demand: list[Demand], workers: list[WorkerRow], machines: list[Seen], given_limits: Limits
) -> None:
    """More help, no more machines."""
    helper = worker("helper", queues=["q", "r"], tasks=["t", "u"], concurrency=3)
    before = decide(demand, workers, machines, given_limits).needed
    assert decide(demand, [*workers, helper], machines, given_limits).needed <= before
