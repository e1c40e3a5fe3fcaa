"""Fly Machines: every way in which its API says no, answers late, or does not answer at all."""

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
    NoCapacity,
    ProviderBusy,
    ProviderDenied,
    ProviderDown,
    ProviderError,
    QuotaReached,
    StartRefused,
)
from tests.support import fake_fly
from tests.support.fake_http import Accident, Reply
from tests.support.providers import FLY, Fly, fly_stage

SEVEN = {"Retry-After": "7"}
PAST = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}

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


# -- the table of SPEC 13 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [fake_fly.BROKEN, fake_fly.PROXY_PAGE, Reply(408), Accident.CUT])
async def test_5xx_and_network_errors_are_tried_again_after_1_2_and_4_s(fly: Fly, trouble: Reply | Accident) -> None:
    """Three retries, then it works."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", trouble, trouble, trouble)
    await fly.provider.start(machine_id)
    assert [seconds for seconds in fly.time.slept if seconds in (1.0, 2.0, 4.0)] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("trouble", [fake_fly.BROKEN, fake_fly.PROXY_PAGE, Accident.CUT])
async def test_after_three_retries_the_provider_is_down(fly: Fly, trouble: Reply | Accident) -> None:
    """Four tries and no more; nothing was started."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", *[trouble] * 5)
    with pytest.raises(ProviderDown, match="after 4 tries"):
        await fly.provider.start(machine_id)
    assert len(fly.fake.sent("/start")) == 4


async def test_nobody_there_at_all_is_down_too() -> None:
    """A refused connection is a network error like any other."""
    async with fly_stage() as fly:
        fly.fake.close()
        with pytest.raises(ProviderDown, match="ConnectError"):
            await fly.provider.list()
        fly.fake.close = lambda: None  # type: ignore[method-assign]  # it is


@pytest.mark.parametrize(
    ("headers", "waited"), [({"Retry-After": "7"}, 7.0), ({}, 2.0), ({"Retry-After": "soon"}, 2.0), (PAST, 0.0)]
)
async def test_429_waits_as_long_as_it_says_or_2_s(fly: Fly, headers: dict[str, str], waited: float) -> None:
    """The real API documents no Retry-After; where one is given it is kept."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", fake_fly.RATE_LIMIT._replace(headers=headers))
    await fly.provider.start(machine_id)
    assert fly.time.slept == [waited]


async def test_429_without_end_is_busy(fly: Fly) -> None:
    """After three waits somebody else decides when to ask again."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", *[fake_fly.RATE_LIMIT] * 4)
    with pytest.raises(ProviderBusy):
        await fly.provider.start(machine_id)


async def test_a_wait_of_an_hour_is_not_waited_here(fly: Fly) -> None:
    """A decision is not held up for that long: the next recovery asks again."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", fake_fly.RATE_LIMIT._replace(headers={"Retry-After": "3600"}))
    with pytest.raises(ProviderBusy):
        await fly.provider.start(machine_id)
    assert fly.time.slept == []


@pytest.mark.parametrize("reply", [fake_fly.BAD_TOKEN, fake_fly.FORBIDDEN])
async def test_401_and_403_are_denied_and_not_retried(fly: Fly, reply: Reply) -> None:
    """Somebody has to mend the token; the message says how."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", reply)
    with pytest.raises(ProviderDenied, match="FLY_API_TOKEN") as told:
        await fly.provider.start(machine_id)
    assert len(fly.fake.sent("/start")) == 1
    assert told.value.request_id == "req-1"


@pytest.mark.parametrize("reply", [fake_fly.QUOTA, fake_fly.MACHINE_LIMIT])
async def test_a_quota_is_no_matter_of_the_token(fly: Fly, reply: Reply) -> None:
    """A 403 that speaks of a quota is told apart; all regions were tried."""
    fly.fake.fail("POST /v1/apps/scans/machines", reply, reply)
    with pytest.raises(QuotaReached):
        await fly.provider.create("burst-1", "burst")
    assert [one.body["region"] for one in fly.fake.sent("POST /v1/apps/scans/machines")] == ["iad", "ewr"]


async def test_still_active_is_asked_again_and_not_failed_over(fly: Fly) -> None:
    """Just after an idle exit the machine reads stopped and refuses for a moment: exactly then the next job comes."""
    fly.fake.still_active = 3
    machine_id = fly.fake.add(state="started")
    fly.fake.exit(machine_id)
    await fly.provider.start(machine_id)
    assert fly.fake.machines[machine_id]["state"] == "starting"
    assert len(fly.fake.sent("/start")) == 4


async def test_a_machine_that_is_still_being_prepared_is_waited_for(fly: Fly) -> None:
    """A new machine fetches its image: not startable now, in a few seconds it is."""
    machine_id = fly.fake.add(state="created")
    fly.fake.fail("/start", *[fake_fly.NOT_READY] * 6)
    await fly.provider.start(machine_id)
    assert fly.time.seconds >= 5


async def test_a_machine_that_never_becomes_ready_is_refused(fly: Fly) -> None:
    """There is an end to patience, and another machine may work."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", *[fake_fly.STILL_ACTIVE] * 60)
    with pytest.raises(StartRefused, match="still active"):
        await fly.provider.start(machine_id)
    assert fly.time.seconds < 120


@pytest.mark.parametrize("reply", [fake_fly.HOST_FULL, fake_fly.NO_CAPACITY, fake_fly.VOLUME_FULL, fake_fly.REGION_FULL])
async def test_a_full_host_is_told_at_once(fly: Fly, reply: Reply) -> None:
    """Waiting does not help: whoever asked takes the next machine."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", reply)
    with pytest.raises(NoCapacity):
        await fly.provider.start(machine_id)
    assert fly.time.slept == []


@pytest.mark.parametrize("reply", [fake_fly.HOST_FULL, fake_fly.REGION_FULL, fake_fly.NO_CAPACITY, fake_fly.QUOTA])
async def test_a_full_region_is_followed_by_the_next(fly: Fly, reply: Reply) -> None:
    """A machine elsewhere is better than none."""
    fly.fake.fail("POST /v1/apps/scans/machines", reply)
    machine = await fly.provider.create("burst-1", "burst")
    assert machine.region == "ewr"


async def test_all_regions_full_is_no_capacity(fly: Fly) -> None:
    """Then the job stays queued and recovery asks again."""
    fly.fake.fail("POST /v1/apps/scans/machines", fake_fly.REGION_FULL, fake_fly.REGION_FULL)
    with pytest.raises(NoCapacity):
        await fly.provider.create("burst-1", "burst")
    assert fly.fake.machines == {}


async def test_a_machine_that_a_deploy_holds_is_refused(fly: Fly) -> None:
    """Another machine may start; this one is somebody's for the moment."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", fake_fly.LEASED)
    with pytest.raises(StartRefused, match="lease"):
        await fly.provider.start(machine_id)


async def test_stopping_what_is_not_up_is_no_error_even_if_fly_says_so(fly: Fly) -> None:
    """A refusal is looked into: a machine that is down was to be down."""
    machine_id = fly.fake.add(state="stopped")
    refused = Reply(412, {"error": "failed_precondition: machine not started"})
    fly.fake.fail("/stop", refused)
    await fly.provider.stop(machine_id)
    fly.fake.machines[machine_id]["state"] = "started"
    fly.fake.fail("/stop", refused)
    with pytest.raises(ProviderError, match="not started"):
        await fly.provider.stop(machine_id)


async def test_a_removal_that_is_refused_is_told_unless_the_machine_is_gone(fly: Fly) -> None:
    """Nobody may believe that a machine is gone, and costs nothing, while it is there."""
    machine_id = fly.fake.add(state="started")
    fly.fake.fail(f"DELETE /v1/apps/scans/machines/{machine_id}", fake_fly.LEASED, fake_fly.LEASED)
    with pytest.raises(ProviderError, match="lease"):
        await fly.provider.destroy(machine_id)
    fly.fake.machines[machine_id]["state"] = "destroyed"
    await fly.provider.destroy(machine_id)


async def test_a_name_that_cannot_be_is_not_tried_again(fly: Fly) -> None:
    """422 about the request itself: no retry, no other region."""
    fly.fake.fail("POST /v1/apps/scans/machines", fake_fly.BAD_NAME)
    with pytest.raises(ProviderError, match="lower case") as told:
        await fly.provider.create("Burst 1", "burst")
    assert type(told.value) is ProviderError
    assert len(fly.fake.sent("POST /v1/apps/scans/machines")) == 1


async def test_an_app_that_does_not_exist_is_told(fly: Fly) -> None:
    """A plain-text 404 is read as well as a JSON one."""
    fly.fake.fail("GET /v1/apps/scans/machines", fake_fly.NOT_ROUTED)
    with pytest.raises(ProviderError, match="404"):
        await fly.provider.list()


@pytest.mark.parametrize("body", [None, {"machines": []}, "nothing", [None, 1, {"id": 7}]])
async def test_an_answer_in_another_shape_makes_no_machine_appear(fly: Fly, body: object) -> None:
    """Whatever comes instead of a list: an error or nothing, never a guess."""
    fly.fake.fail("GET /v1/apps/scans/machines", Reply(200, body))
    try:
        assert await fly.provider.list() == []
    except ProviderError:
        pass


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
