"""Machines over HTTP: who sees which, who may act, and what they cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.machines.protocol import MachineState, ProviderDown
from tests.support.machines import FakeProvider
from tests.web.scene import Scene

RATE = 0.0002153


class Fleet:
    def __init__(self, scene: Scene, provider: FakeProvider, clock: ManualClock) -> None:
        self.scene, self.provider, self.clock = scene, provider, clock

    async def run_a_job(self, tenant: str, machine: str) -> str:
        """One that stays running there."""
        job_id = await self.scene.enqueue(f"{tenant} member", "wait")
        await self.scene.hf.store.job_claim(worker="w", machine=machine, queues=["default"], tasks=["wait"], limit=1)
        return job_id

    async def listed(self, who: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.scene.get(who, "/api/machines")).json()["items"]
        return items


@pytest.fixture
async def fleet(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    hf = Holdfast(sqlite_url, clock=clock, machine_provider="fly", machine_max=2)
    provider = FakeProvider(clock)
    hf.machines.use(provider)
    yield Fleet(Scene(hf), provider, clock)
    await hf.aclose()


async def test_the_service_sees_state_age_jobs_and_cost(fleet: Fleet) -> None:
    """Money is the age at the rate of Fly's performance-8x, unless another one is set."""
    fleet.provider.add("pool-1")
    fleet.provider.set("pool-1", MachineState.RUNNING)
    fleet.provider.add("pool-2")
    job_id = await fleet.run_a_job("acme", "pool-1")
    fleet.clock.advance(1000)
    up, down = await fleet.listed("service")
    assert (up["name"], up["state"], up["up_seconds"], up["job_ids"]) == ("pool-1", "running", 1000, [job_id])
    assert up["estimated_cost"] == pytest.approx(1000 * RATE)
    assert (down["state"], down["up_seconds"], down["estimated_cost"]) == ("stopped", None, None)


@pytest.mark.case("P2")
async def test_an_admin_sees_the_machines_of_his_own_jobs_only(fleet: Fleet) -> None:
    """Neither other machines, nor whose jobs run beside his."""
    for name in ("pool-1", "pool-2"):
        fleet.provider.add(name)
        fleet.provider.set(name, MachineState.RUNNING)
    ours = await fleet.run_a_job("acme", "pool-1")
    await fleet.run_a_job("other", "pool-1")
    await fleet.run_a_job("third", "pool-2")
    [machine] = await fleet.listed("acme admin")
    assert (machine["id"], machine["job_ids"], machine["workers"]) == ("pool-1", [ours], [])
    assert machine["estimated_cost"] is None
    assert (await fleet.scene.get("acme member", "/api/machines")).status_code == 403


async def test_the_service_starts_stops_and_scales(fleet: Fleet) -> None:
    """Never above the maximum; each act leaves an event with its author."""
    scene = fleet.scene
    [name] = (await scene.post("service", "/api/machines")).json()["names"]
    assert fleet.provider.called("create") == [name]
    assert (await scene.post("service", f"/api/machines/{name}/stop")).json() == {"names": [name]}
    assert fleet.provider.called("stop") == [name]
    fleet.provider.set(name, MachineState.STOPPED)
    assert (await scene.post("service", f"/api/machines/{name}/start")).json() == {"names": [name]}
    changed = (await scene.call("service", "PUT", "/api/machines/pool", json={"size": 1})).json()["names"]
    assert len(changed) == 1 and fleet.provider.machines[changed[0]].kind == "pool"
    full = await scene.post("service", "/api/machines")
    assert (full.status_code, full.json()["code"]) == (409, "at_maximum")
    too_many = await scene.call("service", "PUT", "/api/machines/pool", json={"size": 3})
    assert too_many.status_code == 422
    assert (await scene.post("service", "/api/machines/nobody/stop")).status_code == 404
    types = [event.type for event in await scene.hf.events() if event.type.startswith("machine.")]
    assert types == ["machine.scaled", "machine.started", "machine.stopped", "machine.started"]


async def test_scaling_down_destroys_stopped_machines_of_the_pool(fleet: Fleet) -> None:
    """Those that run finish first."""
    fleet.provider.add("pool-1")
    fleet.provider.add("pool-2")
    fleet.provider.set("pool-2", MachineState.RUNNING)
    answer = await fleet.scene.call("service", "PUT", "/api/machines/pool", json={"size": 0})
    assert answer.json() == {"names": ["pool-1"]} and list(fleet.provider.machines) == ["pool-2"]


async def test_a_provider_that_is_down_is_a_502_without_its_words(fleet: Fleet) -> None:
    """What it said is in the server's log."""
    fleet.provider.failing["list"] = [ProviderDown("secret address")]
    answer = await fleet.scene.get("service", "/api/machines")
    assert (answer.status_code, answer.json()["code"]) == (502, "machines_unavailable")
    assert "secret address" not in answer.text


async def test_usage_tells_each_tenant_its_share_and_the_service_all(fleet: Fleet) -> None:
    """By month, with what it costs; and the time that machines were up."""
    scene, records = fleet.scene, fleet.scene.hf.machines.orchestrator.records
    await records.count("tenant:acme", 3, 100.0)
    await records.count("tenant:other", 1, 50.0)
    fleet.provider.add("pool-1")
    fleet.provider.set("pool-1", MachineState.RUNNING)
    for _ in range(3):
        await scene.hf.reap()
        fleet.clock.advance(60)
    [own] = (await scene.get("acme admin", "/api/machines/usage?month=2030-01")).json()["items"]
    assert (own["tenant"], own["runs"], own["seconds"]) == ("acme", 3, 100.0)
    assert own["estimated_cost"] == pytest.approx(100 * RATE)
    rows = (await scene.get("service", "/api/machines/usage")).json()["items"]
    assert {(row["subject"], row["tenant"], row["runs"], row["seconds"]) for row in rows} == {
        ("tenant", "acme", 3, 100.0),
        ("tenant", "other", 1, 50.0),
        ("machines", None, 1, 120.0),
    }
    assert (await scene.get("acme admin", "/api/machines/usage?month=2030-13")).status_code == 422


async def test_usage_of_a_job_is_the_time_of_its_runs_on_machines(fleet: Fleet) -> None:
    """For whoever may read the job."""
    job_id = await fleet.run_a_job("acme", "pool-1")
    fleet.clock.advance(30)
    usage = (await fleet.scene.get("acme viewer", f"/api/jobs/{job_id}/usage")).json()
    assert (usage["runs"], usage["seconds"]) == (1, 30.0) and usage["estimated_cost"] == pytest.approx(30 * RATE)
    assert (await fleet.scene.get("other viewer", f"/api/jobs/{job_id}/usage")).status_code == 404
