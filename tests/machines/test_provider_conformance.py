"""What every provider of machines keeps. Each test runs once for each provider of `STAGES` in tests/support/providers.py."""

from __future__ import annotations

import pytest

from holdfast.machines.protocol import Machine, MachineState, StartRefused
from tests.support.providers import Stage
from tests.support.waiting import until

BEGUN = (MachineState.STARTING, MachineState.RUNNING)
WAIT = 30.0


async def look(stage: Stage, machine_id: str) -> Machine | None:
    return next((one for one in await stage.provider.list() if one.id == machine_id), None)


async def state_of(stage: Stage, machine_id: str) -> MachineState:
    found = await look(stage, machine_id)
    return found.state if found else MachineState.GONE


async def running(stage: Stage, name: str, kind: str = "burst") -> Machine:
    made = await stage.provider.create(name, kind)  # type: ignore[arg-type]

    async def runs() -> Machine | None:
        found = await look(stage, made.id)
        return found if found and found.state is MachineState.RUNNING else None

    return await until(runs, WAIT)


async def ended(stage: Stage, machine_id: str, *states: MachineState) -> MachineState:
    async def over() -> MachineState | None:
        state = await state_of(stage, machine_id)
        return state if state in (states or (MachineState.STOPPED, MachineState.GONE)) else None

    return await until(over, WAIT)


async def test_at_first_there_is_no_machine(stage: Stage) -> None:
    """A list of nothing is empty, and no error."""
    assert await stage.provider.list() == []


@pytest.mark.parametrize("kind", ["pool", "burst"])
async def test_a_created_machine_is_on_its_way_and_then_runs(stage: Stage, kind: str) -> None:
    """Create makes and starts; nobody has to start it as well."""
    made = await stage.provider.create("hold-1", kind)  # type: ignore[arg-type]
    assert (made.name, made.kind, made.state in BEGUN) == ("hold-1", kind, True)
    await until(lambda: _is(stage, made.id, MachineState.RUNNING), WAIT)


async def _is(stage: Stage, machine_id: str, state: MachineState) -> bool:
    return await state_of(stage, machine_id) is state


async def test_a_name_is_never_doubled(stage: Stage) -> None:
    """The same name again answers the machine that has it."""
    first = await stage.provider.create("hold-1", "burst")
    second = await stage.provider.create("hold-1", "burst")
    assert second.id == first.id
    assert [one.id for one in await stage.provider.list()] == [first.id]


async def test_the_list_knows_name_kind_and_age(stage: Stage) -> None:
    """What the orchestrator needs to end a machine that lives too long."""
    machine = await running(stage, "hold-1", "pool")
    assert (machine.name, machine.kind, machine.reachable) == ("hold-1", "pool", True)
    assert machine.created_at is not None and machine.created_at.tzinfo is not None
    assert machine.started_at is not None and machine.started_at.tzinfo is not None


async def test_a_stopped_machine_ends(stage: Stage) -> None:
    """After stop it is soon neither running nor on its way."""
    machine = await running(stage, "hold-1")
    await stage.provider.stop(machine.id)
    await ended(stage, machine.id)


async def test_stop_and_destroy_may_be_said_twice(stage: Stage) -> None:
    """What is done already is no error."""
    machine = await running(stage, "hold-1")
    await stage.provider.stop(machine.id)
    await stage.provider.stop(machine.id)
    await stage.provider.destroy(machine.id)
    await stage.provider.destroy(machine.id)
    await stage.provider.stop(machine.id)
    await ended(stage, machine.id, MachineState.GONE)


async def test_a_destroyed_machine_is_gone_and_its_name_free(stage: Stage) -> None:
    """The next machine of that name is a new one that runs."""
    machine = await running(stage, "hold-1")
    await stage.provider.destroy(machine.id)
    await ended(stage, machine.id, MachineState.GONE)
    again = await stage.provider.create("hold-1", "burst")
    assert again.state in BEGUN


async def test_a_burst_machine_removes_itself_when_its_worker_exits(stage: Stage) -> None:
    """Nobody cleans up after a rush."""
    machine = await running(stage, "hold-1", "burst")
    stage.exit(machine.id)
    await ended(stage, machine.id, MachineState.GONE)


async def test_after_an_exit_the_name_serves_again(stage: Stage) -> None:
    """A name that belonged to a machine that ended does not block the next one."""
    machine = await running(stage, "hold-1", "burst")
    stage.exit(machine.id)
    again = await running(stage, "hold-1", "burst")
    assert again.state is MachineState.RUNNING


async def test_starting_what_runs_is_no_error(stage: Stage) -> None:
    """Two who decide at once may both start it."""
    machine = await running(stage, "hold-1", "pool")
    await stage.provider.start(machine.id)
    assert await state_of(stage, machine.id) in BEGUN


async def test_a_pool_machine_that_exited_starts_again_or_is_gone(stage: Stage) -> None:
    """What reads as stopped can be started; what cannot be started does not read as stopped."""
    machine = await running(stage, "hold-1", "pool")
    stage.exit(machine.id)
    if await ended(stage, machine.id) is MachineState.STOPPED:
        await stage.provider.start(machine.id)
        await until(lambda: _is(stage, machine.id, MachineState.RUNNING), WAIT)
    else:
        with pytest.raises(StartRefused):
            await stage.provider.start(machine.id)


async def test_starting_a_machine_that_never_was_is_refused(stage: Stage) -> None:
    """Refused for this one machine: another may start."""
    with pytest.raises(StartRefused):
        await stage.provider.start("never-was")


async def test_closing_twice_is_fine(stage: Stage) -> None:
    """Whoever ends last may close again."""
    await stage.provider.list()
    await stage.provider.aclose()
    await stage.provider.aclose()
