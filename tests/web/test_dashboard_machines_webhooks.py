"""Machines and webhooks on the dashboard: what each role sees of them, and what is done to them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.machines.protocol import MachineState, ProviderDown
from tests.support.machines import FakeProvider
from tests.support.stand_in import Answer, stand_in
from tests.web.scene import Scene
from tests.web.test_dashboard_actions import confirm, events_of, said


class Fleet:
    """Two machines; on one of them runs a job of acme, beside one of another organization."""

    def __init__(self, scene: Scene, provider: FakeProvider, clock: ManualClock) -> None:
        self.scene, self.provider, self.clock = scene, provider, clock
        self.job_ids: dict[str, str] = {}

    async def fill(self) -> None:
        for name in ("pool-1", "pool-2"):
            self.provider.add(name, region="ams")
        self.provider.set("pool-1", MachineState.RUNNING)
        for tenant in ("acme", "rival"):
            self.job_ids[tenant] = await self.scene.enqueue(f"{tenant} member", "wait")
            await self.scene.hf.store.job_claim(worker="w", machine="pool-1", queues=["default"], tasks=["wait"], limit=1)
        await self.scene.hf.machines.orchestrator.records.count("tenant:acme", 3, 20_000.0)
        await self.scene.hf.machines.orchestrator.records.count("tenant:rival", 1, 50.0)
        self.clock.advance(1000)


@pytest.fixture
async def fleet(sqlite_url: str, clock: ManualClock) -> AsyncIterator[Fleet]:
    hf = Holdfast(sqlite_url, clock=clock, machine_provider="fly", machine_max=2)
    provider = FakeProvider(clock)
    hf.machines.use(provider)
    fleet = Fleet(Scene(hf), provider, clock)
    await fleet.fill()
    yield fleet
    await hf.aclose()


async def test_machines_are_shown_with_state_age_jobs_and_cost(fleet: Fleet) -> None:
    """All of them to the service role, with each organization's share of the month."""
    page = await fleet.scene.get("service", "/machines")
    text = said(page)
    assert "running pool-1 pool ams" in text and "stopped pool-2 pool ams none –" in text
    assert "16m $0.2153" in text, "since its start"
    assert "acme 3 5h 33m $4.31" in text and "rival 1 50 s $0.0108" in text
    assert all(job_id in page.text for job_id in fleet.job_ids.values())
    earlier = said(await fleet.scene.get("service", "/machines?month=2029-12"))
    assert "Nothing ran on a machine in this month." in earlier
    assert (await fleet.scene.get("service", "/machines?month=soon")).status_code == 422


@pytest.mark.case("P2")
async def test_an_admin_sees_his_own_part_of_the_machines(fleet: Fleet) -> None:
    """Neither other machines, nor whose jobs run beside his, nor what others cost; and is offered no button."""
    page = await fleet.scene.get("acme admin", "/machines")
    assert "pool-1" in page.text and fleet.job_ids["acme"] in page.text and "$4.31" in page.text
    assert "pool-2" not in page.text and fleet.job_ids["rival"] not in page.text and "rival" not in page.text
    assert "/machines/st" not in page.text
    job = f"/jobs/{fleet.job_ids['acme']}"
    assert "Machine time 16m, $0.2153 at the most" in said(await fleet.scene.get("acme admin", job))
    assert "Machine time" not in said(await fleet.scene.get("acme member", job))


async def test_machines_are_started_stopped_and_scaled_from_the_page(fleet: Fleet) -> None:
    """Asked first, with what runs there; refused above the maximum; each with its author in the audit trail."""
    scene = fleet.scene
    steps = [
        ("stop", {"machine": "pool-1"}, "on which 2 jobs run", "stop"),
        ("start", {"machine": "pool-2"}, "Starts pool-2.", "start"),
        ("scale", {"size": "2"}, "Keeps 2 machines in the pool, which has 2 now.", ""),
    ]
    for verb, form, sentence, call in steps:
        path = f"/machines/{verb}"
        question = await scene.call("service", "POST", path, data=form)
        assert sentence in said(question)
        assert not call or fleet.provider.called(call) == [], "asking does nothing"
        done = await confirm(scene, "service", path, question)
        assert (done.status_code, done.headers["location"]) == (303, "/machines?done=asked"), said(done)
        assert not call or fleet.provider.called(call) == [form["machine"]]
    written = [kind for kind, actor in await events_of(scene, limit=50) if actor and kind.startswith("machine.")]
    assert written[::-1] == ["machine.stopped", "machine.started", "machine.scaled"]
    full = await confirm(scene, "service", "/machines/start", await scene.call("service", "POST", "/machines/start"))
    assert full.status_code == 409 and "2 of at most 2 machines are up" in said(full)
    assert (await scene.call("service", "POST", "/machines/stop", data={"machine": "gone"})).status_code == 404
    assert (await scene.call("service", "POST", "/machines/scale", data={"size": "many"})).status_code == 422


async def test_a_provider_that_is_down_leaves_the_cost_readable(fleet: Fleet) -> None:
    """The page says so, and what was asked of it is refused, without the provider's own words."""
    fleet.provider.failing["list"] = [ProviderDown("secret address")]
    page = await fleet.scene.get("service", "/machines")
    assert page.status_code == 200 and "does not answer" in said(page) and "$4.31" in page.text
    refused = await fleet.scene.call("service", "POST", "/machines/start")
    assert refused.status_code == 502 and "The provider of machines did not do it" in said(refused)
    assert "secret address" not in page.text + refused.text and "database" not in said(refused)


async def test_without_a_provider_the_page_teaches(sqlite_url: str) -> None:
    """How machines come to be there, and where that is written."""
    hf = Holdfast(sqlite_url)
    page = said(await Scene(hf).get("service", "/machines"))
    await hf.aclose()
    assert "HOLDFAST_MACHINE_PROVIDER=local" in page and "docs/machines.md" in page and "Start one" not in page


# -- webhooks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def hooked(sqlite_url: str) -> AsyncIterator[Scene]:
    hf = Holdfast(sqlite_url, webhooks=True, webhook_networks=["127.0.0.0/8"])
    yield Scene(hf)
    await hf.aclose()


async def test_a_webhook_lives_on_the_dashboard(hooked: Scene) -> None:
    """Made, tested, failing, replayed, changed, rotated, disabled, enabled, removed: each asked and written down."""

    async def act(verb: str, **form: str) -> tuple[str, str]:
        path = f"{place}/{verb}"
        question = await hooked.call("acme admin", "POST", path, data=form)
        done = await confirm(hooked, "acme admin", path, question)
        assert done.status_code in (200, 303), said(done)
        return said(question), done.text

    async with stand_in() as receiver:
        receiver.script = [Answer(410)]
        new = {"url": receiver.url, "events": "job.*, invoice.paid"}
        made = await hooked.call("acme admin", "POST", "/webhooks/make", data=new)
        [secret] = re.findall(r"whsec_[A-Za-z0-9+/=]+", made.text)
        [webhook] = await hooked.hf.webhooks.list(tenant="acme")
        assert webhook.events == ["job.*", "invoice.paid"]
        place = f"/webhooks/{webhook.id}"
        listed = await hooked.get("acme admin", "/webhooks")
        assert f'href="{place}"' in listed.text and secret not in listed.text
        assert (await hooked.hf.webhooks.deliveries(webhook.id)) == []
        question, _ = await act("test")
        assert "Send 1 test?" in question
        await hooked.work()
        text = said(await hooked.get("acme admin", place))
        assert "disabled" in text and "failed webhook.test" in text and "HTTP 410" in text
        await act("enable")
        question, _ = await act("replay")
        assert "Send 1 message again?" in question
        await hooked.work()
        assert "completed webhook.test" in said(await hooked.get("acme admin", f"{place}?state=completed"))
        assert (await hooked.call("acme admin", "POST", f"{place}/replay")).status_code == 422, "nothing failed is left"
        question, _ = await act("change", events="job.failed")
        assert "until now job.*, invoice.paid" in question
        _, page = await act("rotate")
        assert re.findall(r"whsec_[A-Za-z0-9+/=]+", page) not in ([], [secret])
        await act("disable")
        assert (await hooked.call("acme admin", "POST", f"{place}/test", data={"confirm": "1"})).status_code == 409
        await act("remove")
    assert await hooked.hf.webhooks.list() == []
    written = [kind for kind, actor in await events_of(hooked, limit=50) if actor and kind.startswith(("webhook", "job."))]
    done = ["created", "tested", "enabled", "changed", "rotated", "disabled", "removed"]
    assert [kind for kind in written[::-1] if kind.startswith("webhook")] == [f"webhook.{verb}" for verb in done]
    assert "job.retried" in written


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "nonsense", ""])
async def test_an_address_that_may_not_be_called_is_refused(hooked: Scene, url: str) -> None:
    """With a sentence, and nothing is stored."""
    answer = await hooked.call("acme admin", "POST", "/webhooks/make", data={"url": url})
    assert answer.status_code == 422 and "Holdfast" in answer.text
    assert await hooked.hf.webhooks.list() == []


# -- batches -------------------------------------------------------------------------------------------------------------


async def test_a_job_of_a_batch_leads_to_the_others(scene: Scene) -> None:
    """Its page links to the list of its batch, which has all of it and nothing else; bulk actions keep to it."""
    add = scene.hf.task_named("add")
    batch = await scene.hf.batch([add.job(1), add.job(2)], tenant="acme")
    outside = await scene.enqueue()
    link = f"/jobs?batch={batch.id}"
    [first, *_] = await scene.hf.jobs(batch=batch.id)
    assert f'href="{link}"' in (await scene.get("acme viewer", f"/jobs/{first.id}")).text
    page = await scene.get("acme viewer", link)
    assert page.text.count('id="job-') == 2 and outside not in page.text
    assert (await scene.get("acme viewer", f"/jump?q=batch:{batch.id}")).headers["location"] == link
    form = {"verb": "cancel", "scope": "filter", "batch": batch.id}
    question = await scene.call("acme member", "POST", "/jobs/act", data=form)
    assert "Cancel 2 jobs?" in said(question) and f"of batch {batch.id}" in said(question)
