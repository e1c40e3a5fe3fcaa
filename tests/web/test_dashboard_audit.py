"""Every action of the dashboard is in the audit trail, with who did it."""

from __future__ import annotations

from holdfast.job import Event
from tests.web.scene import Scene
from tests.web.test_dashboard_actions import fields_of
from tests.web.test_dashboard_pages import TABLE

REMOVES = "POST /webhooks/{webhook_id}/remove"
WITH_MORE = {"POST /machines/start", "POST /machines/stop", "POST /machines/scale", "POST /webhooks/{webhook_id}/replay"}
"""Need a provider of machines, or a message that failed: `test_dashboard_machines_webhooks.py` has those."""


async def _trail(scene: Scene) -> dict[int, Event]:
    return {event.id: event for event in await scene.hf.events(limit=200)}


async def test_every_action_is_in_the_audit_trail(scene: Scene) -> None:
    """Whatever the dashboard's own table of routes lets somebody do, done once: each leaves an event that names him."""
    hf = scene.hf
    await hf.tenants.set("acme", plan="pro")
    await hf.members.add("acme", "ana", "owner")
    await hf.members.add("acme", "ben", "viewer")
    await hf.projects.create("acme", "web", name="Web")
    await hf.schedules.set("nightly", hf.task_named("add"), "0 3 * * *", tenant="acme", args={"a": 1})
    key = (await hf.keys.create(tenant="acme", role="viewer")).key
    webhook = (await hf.webhooks.set("acme", "https://example.com/hooks")).webhook
    failed = await scene.enqueue(args={"a": -1})
    await scene.work()
    one, other = await scene.enqueue(), await scene.enqueue()
    who = (await scene.get("service", "/api/session")).json()["actor"]
    silent = []
    calls = [call for call in TABLE if call.startswith("POST") and call not in {REMOVES, *WITH_MORE}]
    for call in [*calls, REMOVES]:
        path = call.split()[1].replace("{webhook_id}", webhook.id).replace("{job_id}", failed if "retry" in call else one)
        fields = TABLE[call].form or {}
        form = {name: value.format(job=other, key=key.id, tenant="acme", no=1) for name, value in fields.items()}
        before = await _trail(scene)
        answer = await scene.call("service", "POST", path, params={"tenant": "acme"}, data=form)
        if 'id="question"' in answer.text:
            answer = await scene.call("service", "POST", path, params={"tenant": "acme"}, data=fields_of(answer))
        assert answer.status_code in (200, 303), f"{call}: {answer.status_code}"
        if who not in [event.actor for no, event in (await _trail(scene)).items() if no not in before]:
            silent.append(call)
    assert silent == []
