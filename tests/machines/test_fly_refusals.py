"""Fly Machines: every way in which its API says no, and what is done about it."""

from __future__ import annotations

import pytest

from holdfast.machines.protocol import (
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
from tests.support.providers import Fly, fly_stage

SEVEN = {"Retry-After": "7"}
PAST = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}


@pytest.mark.case("machines-4")
@pytest.mark.parametrize("trouble", [fake_fly.BROKEN, fake_fly.PROXY_PAGE, Reply(408), Accident.CUT])
async def test_5xx_and_network_errors_are_tried_again_after_1_2_and_4_s(fly: Fly, trouble: Reply | Accident) -> None:
    """Three retries, then it works."""
    machine_id = fly.fake.add()
    fly.fake.fail("/start", trouble, trouble, trouble)
    await fly.provider.start(machine_id)
    assert [seconds for seconds in fly.time.slept if seconds in (1.0, 2.0, 4.0)] == [1.0, 2.0, 4.0]


@pytest.mark.case("machines-4")
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


@pytest.mark.case("machines-5")
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


@pytest.mark.case("machines-6")
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
