"""Fly Machines: what is made, what its states mean, lists that lie, answers that get lost, and manners."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.errors import ConfigError
from holdfast.machines import fly as module
from holdfast.machines.fly import STATES, FlyOptions, FlyProvider
from holdfast.machines.protocol import (
    MachineState,
    ProviderDenied,
    ProviderDown,
    ProviderError,
)
from tests.support import fake_fly
from tests.support.fake_http import Accident, Reply
from tests.support.providers import FLY, Fly, fly_stage

# -- what is made ------------------------------------------------------------------------------------------------------


async def test_a_burst_machine_removes_itself_and_never_restarts(fly: Fly) -> None:
    """auto_destroy and restart `no` are said when it is made; start has no body to say them in."""
    await fly.provider.create("burst-1", "burst")
    config = fly.fake.sent("POST /v1/apps/scans/machines")[0].body["config"]
    assert (config["auto_destroy"], config["restart"]) == (True, {"policy": "no"})
    assert config["guest"] == {"cpu_kind": "performance", "cpus": 8, "memory_mb": 65_536}
    assert "services" not in config, "no inbound port"


async def test_a_pool_machine_stays_when_it_exits(fly: Fly) -> None:
    """auto_destroy on a pool machine would remove it at its first idle exit."""
    await fly.provider.create("pool-1", "pool")
    config = fly.fake.sent("POST /v1/apps/scans/machines")[0].body["config"]
    assert (config["auto_destroy"], config["restart"]) == (False, {"policy": "no"})


async def test_without_an_image_the_deployed_one_is_run() -> None:
    """A burst machine runs what the pool runs, so a deploy needs no second setting."""
    async with fly_stage(options=msgspec.structs.replace(FLY, image=None)) as fly:
        fly.fake.add(config={"image": "registry.fly.io/scans:v7", "metadata": {"fly_process_group": "worker"}})
        await fly.provider.create("burst-1", "burst")
        assert fly.fake.sent("POST /v1/apps/scans/machines")[0].body["config"]["image"] == "registry.fly.io/scans:v7"


async def test_without_any_image_the_error_says_what_to_do() -> None:
    """No image set and none deployed: nothing can be made, and the message says why."""
    async with fly_stage(options=msgspec.structs.replace(FLY, image=None)) as fly:
        with pytest.raises(ProviderError, match="fly deploy"):
            await fly.provider.create("burst-1", "burst")


@pytest.mark.parametrize("state", ["created", "stopped", "suspended"])
async def test_pool_machines_start_from_every_state_that_can_start(fly: Fly, state: str) -> None:
    """A pool made by `fly scale` sits in `created`; asking for `stopped` alone would never find it."""
    machine_id = fly.fake.add(state=state)
    (machine,) = await fly.provider.list()
    assert (machine.state, machine.said) == (MachineState.STOPPED, state)
    await fly.provider.start(machine_id)
    assert fly.fake.machines[machine_id]["state"] == "starting"
    assert fly.fake.sent("/start")[0].body is None


async def test_only_the_pools_own_machines_are_listed(fly: Fly) -> None:
    """Other process groups, other pools and the machine of a release command are none of ours."""
    ours = fly.fake.add()
    fly.fake.add(config={"metadata": {"fly_process_group": "web"}})
    fly.fake.add(config={"metadata": {"fly_process_group": "fly_app_release_command"}})
    fly.fake.add(config={"metadata": {"holdfast_pool": "other"}})
    fly.fake.add(config={})
    assert [machine.id for machine in await fly.provider.list()] == [ours]


# -- states ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["updating", "replacing", "launch_failed", "hibernating", ""])
async def test_a_state_that_we_do_not_know_is_unknown(fly: Fly, said: str) -> None:
    """Never taken for running."""
    fly.fake.add(state=said)
    (machine,) = await fly.provider.list()
    assert (machine.state, machine.said) == (MachineState.UNKNOWN, said)


def test_only_started_means_running() -> None:
    """Of all words of the API one is a machine that works."""
    assert [word for word, state in STATES.items() if state is MachineState.RUNNING] == ["started"]


async def test_a_machine_that_starts_for_too_long_is_not_on_its_way() -> None:
    """After five minutes it is wedged: it no longer counts as one that will serve."""
    later = datetime.now(UTC) + timedelta(minutes=6)
    async with fly_stage(now=lambda: later) as fly:
        fly.fake.add(state="starting")
        (machine,) = await fly.provider.list()
        assert machine.state is MachineState.UNKNOWN


async def test_what_we_made_and_launched_is_on_its_way_while_it_is_created() -> None:
    """It fetches its image; only when that takes for ever it becomes something to start."""
    at = datetime.now(UTC)
    async with fly_stage(now=lambda: at) as fly:
        made = await fly.provider.create("burst-1", "burst")
        assert (made.said, made.state) == ("created", MachineState.STARTING)
        at += timedelta(minutes=6)
        (machine,) = await fly.provider.list()
        assert (machine.said, machine.state) == ("created", MachineState.STOPPED)


@pytest.mark.parametrize("host", ["unreachable", "unknown"])
async def test_a_host_that_does_not_answer_is_told(fly: Fly, host: str) -> None:
    """Its machine is listed with what is known of it, and marked so that nobody counts on it."""
    fly.fake.add(host_status=host, config=None, incomplete_config={"metadata": {"fly_process_group": "worker"}})
    (machine,) = await fly.provider.list()
    assert not machine.reachable


# -- lists that lie ----------------------------------------------------------------------------------------------------


async def test_an_empty_list_of_an_app_that_has_machines_is_not_believed(fly: Fly) -> None:
    """On such a list nobody may decide to make machines: it happened, and made doubles."""
    fly.fake.add()
    fly.fake.empty_lists = 1
    with pytest.raises(ProviderDown, match="counts 1"):
        await fly.provider.list()
    assert len(await fly.provider.list()) == 1


async def test_a_machine_that_the_list_does_not_show_yet_is_counted(fly: Fly) -> None:
    """The list lags behind a create; what we made is looked at by its id."""
    fly.fake.add()
    fly.fake.lag = 3
    made = await fly.provider.create("burst-1", "burst")
    assert made.id in [machine.id for machine in await fly.provider.list()]


# -- lost answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 2])
@pytest.mark.parametrize("accident", [Accident.LOST, Accident.BROKE])
async def test_a_create_whose_answer_is_lost_makes_one_machine(fly: Fly, accident: Accident, lag: int) -> None:
    """The name is taken: the machine that has it is adopted, also while no list shows it."""
    fly.fake.lag = lag
    fly.fake.fail("POST /v1/apps/scans/machines", accident)
    machine = await fly.provider.create("burst-1", "burst")
    assert list(fly.fake.machines) == [machine.id]
    assert (machine.name, machine.kind) == ("burst-1", "burst")


async def test_an_answer_that_never_comes_is_a_time_out_and_one_machine() -> None:
    """The request was done; the second try finds it."""
    async with fly_stage(timeout=3.0) as fly:
        fly.fake.fail("POST /v1/apps/scans/machines", Accident.SILENCE)
        machine = await fly.provider.create("burst-1", "burst")
        assert list(fly.fake.machines) == [machine.id]
        assert fly.time.slept == [1.0]


@pytest.mark.parametrize("verb", ["start", "stop", "destroy"])
async def test_a_lost_answer_to_a_change_is_asked_again_and_no_error(fly: Fly, verb: str) -> None:
    """Every verb may be said twice."""
    machine_id = fly.fake.add(state="started" if verb == "stop" else "stopped")
    fly.fake.fail("DELETE /v1/apps/scans/machines/" + machine_id if verb == "destroy" else f"/{verb}", Accident.LOST)
    await getattr(fly.provider, verb)(machine_id)
    wanted = {"start": ("starting", "started"), "stop": ("stopping",), "destroy": ("destroyed",)}[verb]
    assert fly.fake.machines[machine_id]["state"] in wanted


async def test_a_name_that_belongs_to_somebody_else_is_not_adopted(fly: Fly) -> None:
    """The app may have other machines; one of them is not our worker."""
    fly.fake.add(name="burst-1", config={"metadata": {"fly_process_group": "web"}})
    with pytest.raises(ProviderError, match="somebody else"):
        await fly.provider.create("burst-1", "burst")


# -- manners -----------------------------------------------------------------------------------------------------------


async def test_the_documented_rate_is_kept(fly: Fly) -> None:
    """Twelve machines in a row: three at once, then one a second; the API never has to say 429."""
    for number in range(12):
        await fly.provider.create(f"burst-{number}", "burst")
    assert len(fly.fake.requests) == 12
    assert fly.time.seconds == pytest.approx(9)


async def test_starts_of_several_machines_do_not_wait_for_each_other(fly: Fly) -> None:
    """The rate counts per machine."""
    for machine_id in [fly.fake.add() for _ in range(8)]:
        await fly.provider.start(machine_id)
    assert fly.time.slept == []


async def test_the_request_id_is_logged_and_the_token_never(fly: Fly, caplog: pytest.LogCaptureFixture) -> None:
    """What Fly's support asks for is there; what nobody may read is not, even when the API repeats it."""
    caplog.set_level(logging.DEBUG)
    fly.fake.fail("GET /v1/apps/scans/machines", Reply(500, {"error": f"token {fake_fly.TOKEN} is odd"}))
    fly.fake.fail("GET /v1/apps/scans/machines", Reply(403, {"error": f"token {fake_fly.TOKEN} may not"}))
    with pytest.raises(ProviderDenied) as told:
        await fly.provider.list()
    assert "req-1" in caplog.text and "req-2" in caplog.text
    shown = caplog.text + str(told.value) + repr(told.value) + repr(fly.provider)
    assert fake_fly.TOKEN not in shown


def test_an_empty_token_is_refused_before_anything_is_sent() -> None:
    """With the command that makes one."""
    with pytest.raises(ConfigError, match="fly tokens create deploy"):
        FlyProvider(FlyOptions(app="scans"), " ")


def test_no_region_is_refused() -> None:
    """There would be nowhere to make a machine."""
    with pytest.raises(ConfigError, match="region"):
        FlyProvider(FlyOptions(app="scans", regions=()), "t")


def test_the_module_does_not_load_httpx() -> None:
    """A worker that never asks Fly does not pay for an HTTP client."""
    import subprocess
    import sys

    probe = f"import sys, {module.__name__}, holdfast.machines.kubernetes; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe]).returncode == 0
