"""Machines that come with the work: when, how many, which, and for how long."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from holdfast import Holdfast, Job, State
from holdfast.machines.protocol import (
    MachineState,
)
from holdfast.processes.orchestrator import WORDS
from tests.cases.fleet import Fleet, another
from tests.cases.steps import PATIENCE_SECONDS, ends, lines
from tests.support.machines import FakeProvider, with_worker
from tests.support.waiting import until

# -- the happy path


@pytest.mark.case("L1", "machines-1")
async def test_a_job_starts_a_stopped_machine_which_does_it_and_stops(fleet_on_both: Fleet) -> None:
    """Queued, running on that machine, completed; the machine stops when it is idle, and nothing is an error."""
    fleet = fleet_on_both
    fleet.provider.add("pool-1")
    fleet.provider.on_start = with_worker(fleet.hf)
    [job] = await fleet.enqueue()
    done = await ends(fleet.hf, job)
    assert done.state is State.COMPLETED and await job.result(timeout=0) == "done"
    assert (done.machine_id, done.error_code) == ("pool-1", None) and done.started_at and done.finished_at
    assert fleet.starts() == ["pool-1"]
    await until(lambda: fleet.provider.up() == [], PATIENCE_SECONDS)


@pytest.mark.case("machines-8")
async def test_without_any_machine_the_first_one_is_created(fleet: Fleet) -> None:
    """It belongs to the pool, so that it is there the next time."""
    await fleet.enqueue()
    [(_, name)] = [call for call in fleet.provider.calls if call[0] == "create"]
    assert fleet.provider.machines[name].kind == "pool"


@pytest.mark.case("machines-2", "C28")
async def test_the_pool_comes_before_a_burst_and_a_burst_warns(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """Three jobs, two machines in the pool: both start, a third is made for the rush, and the log and the job say so."""
    fleet.provider.add("pool-1")
    fleet.provider.add("pool-2")
    jobs = await fleet.enqueue(3)
    made = fleet.provider.called("create")
    assert fleet.provider.called("start") == ["pool-1", "pool-2"]
    assert [fleet.provider.machines[name].kind for name in made] == ["burst"]
    [warning] = [record for record in caplog.records if "made for the rush" in record.message]
    assert warning.levelno == logging.WARNING
    [event] = [event for event in await fleet.hf.events() if event.type == "machine.burst"]
    assert event.job_id in {job.id for job in jobs}


@pytest.mark.case("C25")
async def test_ten_jobs_at_once_start_no_more_than_five_machines_and_all_complete(fleet_on_both: Fleet) -> None:
    """Those that are up take the rest."""
    fleet = fleet_on_both
    fleet.provider.on_start = with_worker(fleet.hf)
    jobs = await fleet.hf.enqueue_many([fleet.work.job() for _ in range(10)])
    for job in jobs:
        assert (await ends(fleet.hf, job)).state is State.COMPLETED
    assert 1 <= fleet.provider.most_up <= 5


@pytest.mark.case("C38")
async def test_ten_jobs_of_a_free_tenant_ask_for_one_machine(fleet_on_both: Fleet) -> None:
    """More could not run a second one of them."""
    fleet = fleet_on_both
    await fleet.enqueue(10, tenant="free")
    assert len(fleet.starts()) == 1
    await fleet.hf.tenants.set("free", plan="starter")
    await fleet.orchestrator.look()
    assert len(fleet.starts()) == 3


async def test_machines_that_are_on_their_way_are_not_asked_for_twice(fleet: Fleet) -> None:
    """Neither while they start, nor while the provider's list does not name them yet."""
    await fleet.enqueue()
    [name] = fleet.starts()
    for state in (MachineState.STOPPED, MachineState.STARTING, MachineState.RUNNING):
        fleet.provider.set(name, state)
        await fleet.orchestrator.look()
    fleet.provider.hidden.add(name)
    await fleet.orchestrator.look()
    assert fleet.starts() == [name]


@pytest.mark.case("L25")
async def test_a_worker_that_is_leaving_is_not_counted_on(fleet: Fleet) -> None:
    """A job that comes while the only worker says goodbye gets a machine of its own."""
    fleet.provider.add("pool-1", MachineState.RUNNING)
    fleet.provider.add("pool-2")
    await fleet.worker_row("pool-1")
    await fleet.enqueue()
    assert fleet.starts() == []
    await fleet.worker_row("pool-1", draining=True)
    await fleet.orchestrator.look(supervise=False)
    assert fleet.starts() == ["pool-2"]


async def test_workers_that_are_there_get_help_only_when_work_waits_for_too_long(fleet: Fleet) -> None:
    """A short queue in front of a busy worker is no reason; five seconds are."""
    fleet.provider.add("pool-1", MachineState.RUNNING)
    fleet.provider.add("pool-2")
    await fleet.worker_row("pool-1", running=1)
    await fleet.enqueue()
    assert fleet.starts() == []
    fleet.clock.advance(6)
    await fleet.orchestrator.look(supervise=False)
    assert fleet.starts() == ["pool-2"]


# -- limits


@pytest.mark.case("machines-3")
async def test_at_the_maximum_nothing_starts_and_it_is_said(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    """An error in the log and an event of the job, once; the job stays queued and is served by whoever is free, and the log of
    its run begins with what it waited for."""
    for number in range(5):
        fleet.provider.add(f"burst-{number}", MachineState.RUNNING, "burst")
    fleet.clock.advance(3600)
    for number in range(5):
        await fleet.worker_row(f"burst-{number}", tasks=["other"])
    [job] = await fleet.enqueue()
    await fleet.orchestrator.look()
    assert fleet.starts() == []
    assert any(record.levelno == logging.ERROR and "maximum of 5" in record.message for record in caplog.records)
    assert [event.type for event in await fleet.hf.events(job.id)] == ["machine.at_maximum"]
    why = await fleet.hf.why(job.id)
    assert why.code == "no_machine" and "as many are up as there may be" in why.sentence
    fleet.clock.advance(5)
    await with_worker(fleet.hf)("burst-1")
    [line] = await lines(fleet.hf, job)
    assert (line.level, line.message) == ("error", WORDS["machine.at_maximum"])


async def test_a_pass_starts_no_more_than_five_machines(fleet: Fleet, sqlite_url: str) -> None:
    """Whatever the maximum; the next pass goes on."""
    many = another(sqlite_url, fleet.clock, machine_max=20, machine_pool=20)
    provider = FakeProvider(fleet.clock)
    many.machines.use(provider)
    await fleet.hf._door.enqueue([fleet.work.job() for _ in range(12)], None)
    assert [(await many.reap()).machines_started for _ in range(4)] == [5, 5, 2, 0]
    await many.aclose()


@pytest.mark.case("C28")
async def test_many_who_decide_at_once_start_one_machine(fleet_on_both: Fleet, database_url: str) -> None:
    """One decision at a time across processes: the others leave word and go."""
    fleet = fleet_on_both
    fleet.provider.add("pool-1")
    others = [another(database_url, fleet.clock) for _ in range(4)]
    await fleet.hf._door.enqueue([fleet.work.job()], None)
    fleet.provider.gate = asyncio.Event()
    orchestrators = [other.machines.use(fleet.provider) for other in others]
    looks = [asyncio.create_task(one.look()) for one in orchestrators]
    await until(lambda: fleet.provider.called("list"), PATIENCE_SECONDS)
    await until(lambda: sum(look.done() for look in looks) == 3, PATIENCE_SECONDS)
    fleet.provider.gate.set()
    await asyncio.gather(*looks)
    assert fleet.starts() == ["pool-1"]
    for other in others:
        await other.aclose()


async def test_a_dead_decider_keeps_the_others_waiting_for_two_minutes_at_most(fleet_on_both: Fleet) -> None:
    """Its turn runs out."""
    fleet = fleet_on_both
    assert await fleet.orchestrator.records.take_turn() is not None
    await fleet.enqueue()
    assert fleet.starts() == []
    fleet.clock.advance(121)
    assert (await fleet.hf.reap()).machines_started == 1


# -- asking


async def test_an_enqueue_in_a_transaction_asks_nobody_until_it_is_heard_of(fleet_on_both: Fleet) -> None:
    """Not inside the caller's transaction: the orchestrator hears of the commit."""
    fleet = fleet_on_both
    fleet.provider.add("pool-1")
    async with fleet.hf.machines.running():
        await until(lambda: fleet.orchestrator._platform.store.listening, PATIENCE_SECONDS)
        async with fleet.hf.transaction() as tx:
            await fleet.work.options(tx=tx).enqueue()
            assert fleet.provider.calls == []
        await until(lambda: fleet.starts() == ["pool-1"], PATIENCE_SECONDS)


@pytest.mark.case("C27")
async def test_a_second_machine_for_one_job_finds_nothing_and_ends(fleet: Fleet) -> None:
    """A machine too many is harmless."""
    fleet.provider.on_start = with_worker(fleet.hf)
    [job] = await fleet.enqueue()
    assert (await ends(fleet.hf, job)).state is State.COMPLETED
    await fleet.hf.machines.start()
    await until(lambda: fleet.provider.up() == [], PATIENCE_SECONDS)


async def test_nothing_is_asked_of_the_provider_while_nothing_waits(fleet: Fleet) -> None:
    """A look that an enqueue asked for is over when somebody serves the job."""
    await fleet.worker_row("elsewhere", concurrency=10)
    await fleet.enqueue()
    assert fleet.provider.calls == []


# -- four hours


@pytest.mark.case("L7")
async def test_a_machine_that_outlives_its_time_is_stopped_then_destroyed(fleet_on_both: Fleet) -> None:
    """Its worker should have ended it; where that fails the orchestrator does, first politely."""
    fleet = fleet_on_both
    fleet.provider.add("old", kind="burst")
    fleet.provider.set("old", MachineState.RUNNING)
    fleet.clock.advance(14_400)
    await fleet.orchestrator.look()
    assert fleet.provider.called("stop") == []
    fleet.clock.advance(60)
    await fleet.orchestrator.look()
    assert fleet.provider.called("stop", "destroy") == ["old"]
    fleet.clock.advance(60)
    await fleet.orchestrator.look()
    assert fleet.provider.called("destroy") == []
    fleet.clock.advance(120)
    await fleet.orchestrator.look()
    assert fleet.provider.called("destroy") == ["old"]


@pytest.mark.case("L7")
async def test_a_worker_at_the_end_of_its_life_drains_and_gives_back_what_still_runs(sqlite_url: str) -> None:
    """It claims no more; what does not end in the grace period goes back to the queue."""
    short = Holdfast(sqlite_url, grace=0.2)

    @short.task
    async def long() -> None:
        await asyncio.Event().wait()

    job = await long.enqueue()
    end = await asyncio.wait_for(short.worker(max_lifetime=0.5).run(), PATIENCE_SECONDS)
    back = await short.get(job.id)
    assert (end.reason, back.state) == ("lifetime", State.QUEUED)
    await short.aclose()


@pytest.mark.case("recovery-9")
@pytest.mark.parametrize("gone", ["stopped", "not listed"])
async def test_jobs_of_a_machine_that_is_gone_are_queued_again(fleet_on_both: Fleet, gone: str) -> None:
    """The provider says so: the lease of its worker, which has five minutes to go, is not waited for."""
    fleet = fleet_on_both
    job = await _held_on_a_machine(fleet)
    assert await fleet.states([job]) == {State.RUNNING}
    fleet.clock.advance(60)
    await fleet.hf.reap()
    assert await fleet.states([job]) == {State.RUNNING}
    if gone == "stopped":
        fleet.provider.set("pool-1", MachineState.STOPPED)
    else:
        del fleet.provider.machines["pool-1"]
    await fleet.hf.reap()
    (lost,) = await fleet.hf.runs(job.id)
    assert (lost.outcome, lost.error_code, lost.worker) == ("lost", "worker_died", "w-pool-1")


@pytest.mark.case("recovery-10")
async def test_a_list_that_lags_behind_a_start_costs_no_job(fleet_on_both: Fleet) -> None:
    """The machine was started a moment ago, and the provider still calls it stopped."""
    fleet = fleet_on_both
    job = await _held_on_a_machine(fleet)
    fleet.provider.set("pool-1", MachineState.STOPPED)
    await fleet.orchestrator.records.asked("pool-1", "pool", "pool-1")
    await fleet.hf.reap()
    assert await fleet.states([job]) == {State.RUNNING}


@pytest.mark.case("recovery-10")
async def test_a_list_without_a_machine_whose_worker_reports_costs_no_job(fleet_on_both: Fleet) -> None:
    """Its filter changed, or the answer was short: the worker is there all the same."""
    fleet = fleet_on_both
    job = await _held_on_a_machine(fleet)
    del fleet.provider.machines["pool-1"]
    fleet.clock.advance(30)
    await fleet.hf.reap()
    assert await fleet.states([job]) == {State.RUNNING}


async def _held_on_a_machine(fleet: Fleet) -> Job[Any]:
    """A job that the worker of machine `pool-1` runs; the orchestrator has seen that machine."""
    fleet.provider.add("pool-1", MachineState.RUNNING, started_at=fleet.clock.now())
    await fleet.worker_row("pool-1")
    (job,) = await fleet.enqueue()
    claim = {"worker": "w-pool-1", "machine": "pool-1", "queues": ["default"], "tasks": ["work"], "limit": 1}
    assert [run.id for run in (await fleet.hf.store.job_claim(**claim)).jobs] == [job.id]
    await fleet.orchestrator.look()
    return job
