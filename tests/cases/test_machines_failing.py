"""Machines that do not come: the table of what goes wrong, row by row, with a provider that misbehaves as told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import State
from holdfast.machines.protocol import (
    MachineState,
    NoCapacity,
    ProviderBusy,
    ProviderDenied,
    ProviderDown,
    QuotaReached,
)
from holdfast.processes.orchestrator import VAIN_STARTS
from tests.cases.fleet import Fleet
from tests.cases.steps import PATIENCE_SECONDS, ends
from tests.support.machines import with_worker
from tests.support.waiting import until


@pytest.mark.case("L2", "machines-7")
async def test_a_machine_that_cannot_be_started_is_passed_over(fleet: Fleet) -> None:
    """The next one is tried, then a new one; nobody who enqueues notices."""
    for name in ("pool-1", "pool-2"):
        fleet.provider.add(name)
        fleet.provider.refused.add(name)
    await fleet.enqueue()
    assert fleet.provider.called("start") == ["pool-1", "pool-2"]
    assert len(fleet.provider.called("create")) == 1 and len(fleet.provider.up()) == 1


@pytest.mark.case("L2", "machines-9")
@pytest.mark.parametrize(
    "error", [NoCapacity("region full"), ProviderDown("502"), ProviderBusy("429"), QuotaReached("no more")]
)
async def test_when_nothing_starts_the_job_stays_queued_until_recovery(
    fleet: Fleet, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The enqueue succeeds, the log has an error, and a later recovery pass starts a machine."""
    fleet.provider.failing["create"] = [error]
    jobs = await fleet.enqueue()
    assert await fleet.states(jobs) == {State.QUEUED} and fleet.provider.up() == []
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    assert (await fleet.hf.why(jobs[0].id)).code == "no_machine"
    fleet.provider.failing.clear()
    fleet.clock.advance(90)
    report = await fleet.hf.reap()
    assert (report.orphaned_jobs_found, report.machines_started) == (1, 1)
    assert len(fleet.provider.up()) == 1
    assert (await fleet.hf.why(jobs[0].id)).code == "machine_starting"


@pytest.mark.case("machines-6")
@pytest.mark.parametrize("verb", ["list", "create"])
async def test_a_refused_token_is_critical_and_not_tried_again(
    fleet: Fleet, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A critical log line, a counter, an event; the job stays queued."""
    fleet.provider.failing[verb] = [ProviderDenied("401 token validation error", request_id="01ABC")]
    jobs = await fleet.enqueue()
    assert [name for name, _ in fleet.provider.calls].count(verb) == 1
    [critical] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "01ABC" in critical.message
    assert await fleet.states(jobs) == {State.QUEUED}
    counted = {(tally.name, tally.label): tally.n for tally in await fleet.hf.store.tally_totals()}
    assert counted["machine_failures", "denied"] == 1
    assert "refuses our token" in (await fleet.hf.why(jobs[0].id)).sentence


@pytest.mark.case("machines-4", "I19")
async def test_a_provider_that_is_down_is_asked_by_each_recovery_until_it_is_back(fleet: Fleet) -> None:
    """Jobs pile up; each pass tries; when it is back machines start for them, and none is lost."""
    fleet.provider.failing["list"] = [ProviderDown("no answer")]
    jobs = await fleet.enqueue(4)
    for asked in range(3):
        fleet.clock.advance(60)
        before = len(fleet.provider.called("list"))
        assert (await fleet.hf.reap()).machines_started == 0
        assert len(fleet.provider.called("list")) > before, asked
    assert await fleet.states(jobs) == {State.QUEUED}
    fleet.provider.failing.clear()
    fleet.provider.on_start = with_worker(fleet.hf)
    fleet.clock.advance(60)
    assert (await fleet.hf.reap()).machines_started == 4
    for job in jobs:
        assert (await ends(fleet.hf, job)).state is State.COMPLETED


async def test_a_slow_provider_never_delays_an_enqueue(fleet: Fleet) -> None:
    """The provider does not answer at all, and the enqueues are through."""
    fleet.provider.gate = asyncio.Event()
    jobs = [await fleet.work.enqueue() for _ in range(20)]
    await until(lambda: fleet.provider.calls, PATIENCE_SECONDS)
    assert await fleet.states(jobs) == {State.QUEUED} and len(fleet.provider.calls) == 1
    fleet.provider.gate.set()
    await fleet.asked()
    assert len(fleet.starts()) == 5


async def test_a_lost_answer_makes_no_second_machine(fleet_on_both: Fleet) -> None:
    """The machine is there under the name that we remember, and is found when the list shows it."""
    fleet = fleet_on_both
    fleet.provider.loses_answers = True
    await fleet.enqueue()
    [name] = fleet.provider.called("create")
    fleet.provider.hidden.add(name)
    fleet.provider.loses_answers = False
    for _ in range(3):
        fleet.clock.advance(70)
        await fleet.orchestrator.look()
    assert set(fleet.provider.called("create")) == {name} and fleet.provider.up() == [name]
    fleet.provider.hidden.clear()
    await fleet.orchestrator.look()
    assert fleet.provider.up() == [name]


@pytest.mark.case("L3", "I20", "recovery-6")
async def test_a_machine_that_dies_before_its_claim_is_replaced_by_recovery(
    fleet_on_both: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is still queued, the pass finds the orphan, says so, and starts the machine again."""
    fleet = fleet_on_both
    fleet.provider.add("pool-1")
    [job] = await fleet.enqueue()
    fleet.provider.set("pool-1", MachineState.STOPPED)
    assert (await fleet.hf.reap()).machines_started == 0, "the list may lag behind what was just started"
    fleet.clock.advance(61)
    report = await fleet.hf.reap()
    assert (report.orphaned_jobs_found, report.machines_started) == (1, 1)
    assert "[RECOVERY] Requeued 0 stuck jobs, failed 0 exhausted jobs, started 1 machines for orphaned jobs" in caplog.messages
    assert fleet.starts() == ["pool-1", "pool-1"]
    assert (await fleet.hf.get(job.id)).attempt == 0


async def test_machines_for_a_job_that_none_of_them_serves_come_ever_later(fleet: Fleet) -> None:
    """A task that nobody knows any more must not cost a machine a minute for ever."""
    fleet.provider.add("pool-1")
    await fleet.enqueue()
    for _ in range(60):
        fleet.provider.set("pool-1", MachineState.STOPPED)
        fleet.clock.advance(61)
        await fleet.orchestrator.look()
    assert VAIN_STARTS < len(fleet.starts()) <= VAIN_STARTS + 7


async def test_an_unknown_state_is_neither_running_nor_a_reason_for_another_machine(fleet: Fleet) -> None:
    """With the maximum of such machines nothing starts."""
    for number in range(5):
        fleet.provider.add(f"pool-{number}", MachineState.UNKNOWN)
    await fleet.enqueue()
    assert fleet.starts() == []


async def test_a_machine_on_a_lost_host_is_left_alone(fleet: Fleet) -> None:
    """It is not started, and not counted on."""
    fleet.provider.add("pool-1", reachable=False)
    fleet.provider.add("pool-2")
    await fleet.enqueue()
    assert fleet.starts() == ["pool-2"]
