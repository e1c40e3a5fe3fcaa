"""Every page of the dashboard, for everybody, on what is his own and on what is another organization's."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.web.dashboard.views import GROUPS
from tests.web.scene import ROLES, Scene

Statuses = tuple[int, int, int, int, int]
"""For viewer, member, admin, owner, service."""


def _from(first: str, status: int = 200) -> Statuses:
    return tuple(status if position >= ROLES.index(first) else 403 for position in range(5))  # type: ignore[return-value]


def _absent_from(first: str, status: int = 200) -> Statuses:
    """Of another organization: not there for those who might, forbidden for the rest; the service sees all of them."""
    *tenants, _service = _from(first, 404)
    return (*tenants, status)  # type: ignore[return-value]


class Row(NamedTuple):
    own: Statuses
    foreign: Statuses | None = None
    """None: nothing in the address could be somebody else's."""
    form: dict[str, str] | None = None


READ = _from("viewer")
ABSENT = (404, 404, 404, 404, 200)
TABLE: dict[str, Row] = {
    "GET /": Row(READ, ABSENT),
    "GET /jobs": Row(READ, ABSENT),
    "GET /dead": Row(READ, ABSENT),
    "GET /jump": Row((303, 303, 303, 303, 303), (404, 404, 404, 404, 303)),
    "POST /jobs/act": Row(_from("member"), ABSENT, {"verb": "cancel", "id": "{job}"}),
    "GET /jobs/{job_id}": Row(READ, ABSENT),
    "POST /jobs/{job_id}/cancel": Row(_from("member"), _absent_from("member"), {}),
    "POST /jobs/{job_id}/retry": Row(_from("member"), _absent_from("member"), {}),
    "GET /queues": Row(READ, ABSENT),
    "POST /queues/pause": Row(_from("service"), None, {"queue": "default"}),
    "POST /queues/resume": Row(_from("service"), None, {"queue": "default"}),
    "POST /queues/limit": Row(_from("service"), None, {"queue": "default", "limit": "3"}),
    "GET /schedules": Row(READ, ABSENT),
    "POST /schedules/pause": Row(_from("admin"), _absent_from("admin"), {"schedule": "nightly", "of": "{tenant}"}),
    "POST /schedules/resume": Row(_from("admin"), _absent_from("admin"), {"schedule": "nightly", "of": "{tenant}"}),
    "POST /schedules/run": Row(_from("admin"), _absent_from("admin"), {"schedule": "nightly", "of": "{tenant}"}),
    "GET /workers": Row(_from("service")),
    "GET /machines": Row(_from("admin"), _absent_from("admin")),
    "POST /machines/start": Row(_from("service", 409), None, {}),
    "POST /machines/stop": Row(_from("service", 409), None, {"machine": "pool-1"}),
    "POST /machines/scale": Row(_from("service", 409), None, {"size": "1"}),
    "GET /tenants": Row(_from("service")),
    "GET /events": Row(_from("admin"), (403, 403, 404, 404, 200)),
    "GET /budgets": Row(READ, ABSENT),
    "POST /budgets/cap": Row(_from("service"), _from("service"), {"kind": "ai", "amount": "49.50"}),
    "GET /breakers": Row(_from("service")),
    "POST /breakers/open": Row(_from("service"), None, {"service": "payments"}),
    "POST /breakers/close": Row(_from("service"), None, {"service": "payments"}),
    "GET /organization": Row(READ, ABSENT),
    "POST /organization/pause": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /organization/resume": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /organization/limits": Row(_from("service"), _from("service"), {"plan": "pro"}),
    "GET /members": Row(_from("member"), _absent_from("member")),
    "POST /members/add": Row(_from("owner", 303), _absent_from("owner", 303), {"user": "new-{no}", "role": "viewer"}),
    "POST /members/role": Row(_from("owner"), _absent_from("owner"), {"user": "ben", "role": "admin"}),
    "POST /members/remove": Row(_from("owner"), _absent_from("owner"), {"user": "ben"}),
    "GET /keys": Row(_from("admin"), _absent_from("admin")),
    "POST /keys/make": Row(_from("admin"), _absent_from("admin"), {"role": "viewer", "expires": "1d"}),
    "POST /keys/revoke": Row(_from("admin"), _absent_from("admin"), {"key": "{key}"}),
    "GET /webhooks": Row(_from("admin"), _absent_from("admin")),
    "POST /webhooks/make": Row(_from("admin"), _absent_from("admin"), {"url": "https://example.com/{no}"}),
    "GET /webhooks/{webhook_id}": Row(_from("admin"), _absent_from("admin")),
    "POST /webhooks/{webhook_id}/change": Row(_from("admin"), _absent_from("admin"), {"events": "job.*"}),
    "POST /webhooks/{webhook_id}/rotate": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /webhooks/{webhook_id}/disable": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /webhooks/{webhook_id}/enable": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /webhooks/{webhook_id}/remove": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /webhooks/{webhook_id}/test": Row(_from("admin"), _absent_from("admin"), {}),
    "POST /webhooks/{webhook_id}/replay": Row(_from("admin", 422), _absent_from("admin", 422), {}),
    "GET /projects": Row(READ, ABSENT),
    "GET /projects/show": Row(READ, ABSENT),
    "POST /projects/create": Row(_from("admin", 303), _absent_from("admin", 303), {"id": "new-{no}"}),
    "POST /projects/rename": Row(_from("admin", 303), _absent_from("admin", 303), {"id": "web", "name": "Web"}),
    "POST /projects/remove": Row(_from("admin"), _absent_from("admin"), {"id": "web"}),
}


class Things(NamedTuple):
    job: str
    key: str
    webhook: str
    tenant: str


async def _set_up(scene: Scene, tenant: str) -> Things:
    hf = scene.hf
    await hf.tenants.set(tenant, plan="pro")
    await hf.members.add(tenant, "ana", "owner")
    await hf.members.add(tenant, "ben", "viewer")
    await hf.projects.create(tenant, "web")
    made = await hf.keys.create(tenant=tenant, role="viewer")
    await hf.schedules.set("nightly", hf.task_named("add"), "0 3 * * *", tenant=tenant, args={"a": 1})
    job = await hf.enqueue("add", {"a": 1}, tenant=tenant, project="web")
    webhook = (await hf.webhooks.set(tenant, "https://example.com/hooks")).webhook
    return Things(job.id, made.key.id, webhook.id, tenant)


def test_every_page_is_in_the_table() -> None:
    """A new page says who gets what before it is let in."""
    assert {f"{route.method} {route.path}" for group in GROUPS for route in group.routes} == set(TABLE)


async def _ask(scene: Scene, who: str, call: str, tenant: str | None, things: Things, no: int) -> Any:
    method, path = call.split(" ")
    path = path.replace("{job_id}", things.job).replace("{webhook_id}", things.webhook)
    query = {"tenant": tenant, **({"id": "web"} if path == "/projects/show" else {}), **({"q": "x"} if path == "/jump" else {})}
    form = {
        name: value.format(job=things.job, key=things.key, tenant=things.tenant, no=no)
        for name, value in (TABLE[call].form or {}).items()
    }
    asked = {name: value for name, value in query.items() if value}
    return await scene.call(who, method, path, params=asked, **({"data": form} if method == "POST" else {}))


async def test_who_gets_which_page(scene: Scene) -> None:
    """Own and foreign, for every role: what may not be done is refused also where it is sent without having been offered."""
    own, foreign = await _set_up(scene, "acme"), await _set_up(scene, "other")
    wrong = []
    for no, (call, row) in enumerate(TABLE.items()):
        for tenant, things, expected in (("acme", own, row.own), ("other", foreign, row.foreign)):
            for position, role in enumerate(ROLES):
                if expected is None:
                    continue
                who = "service" if role == "service" else f"acme {role}"
                named = tenant if "tenant" not in call else None
                answer = await _ask(scene, who, call, named, things, no * 10 + position)
                if answer.status_code != expected[position]:
                    wrong.append(f"{call} of {tenant} by {who}: {answer.status_code} instead of {expected[position]}")
    assert wrong == []
    for job in (await scene.hf.get(own.job), await scene.hf.get(foreign.job)):
        assert job.state == "queued", "a question does nothing by itself"


async def test_another_organizations_job_is_not_there(scene: Scene) -> None:
    """Without a tenant in the address as with one: the page says that there is none, and so do its actions."""
    foreign = await _set_up(scene, "other")
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/retry")):
        answer = await scene.call("acme owner", method, f"/jobs/{foreign.job}{path}")
        assert answer.status_code == 404
        assert "There is no job" in answer.text


async def test_nobody_is_led_to_the_login(scene: Scene) -> None:
    """And comes back to where he wanted to go; what a form sends is refused, and nothing done."""
    answer = await scene.get("nobody", "/jobs?state=failed")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fjobs%3Fstate%3Dfailed")
    assert (await scene.get("nobody", "/")).headers["location"] == "/login"
    refused = await scene.call("nobody", "POST", "/queues/pause", data={"queue": "default"})
    assert refused.status_code == 401
    assert (await scene.hf.queues.get("default")).paused_at is None


OFFERS = {
    "viewer": set(),
    "member": {"Cancel"},
    "admin": {"Cancel", "Pause"},
    "service": {"Cancel", "Pause", "Change"},
}


@pytest.mark.parametrize("role", OFFERS)
async def test_what_one_may_not_do_is_not_offered(sqlite_url: str, role: str) -> None:
    """A viewer sees no button that would be refused."""
    hf = Holdfast(sqlite_url)
    scene = Scene(hf)
    things = await _set_up(scene, "acme")
    who = "service" if role == "service" else f"acme {role}"
    job = (await scene.get(who, f"/jobs/{things.job}")).text
    organization = (await scene.get(who, "/organization?tenant=acme")).text
    buttons = {"Cancel", "Pause", "Change"} & set(re.findall(r"<button[^>]*>([^<]+)</button>", job + organization))
    assert buttons == OFFERS[role]
    assert ('actions="cancel retry"' in job) == (role != "viewer"), "the log panel offers no more than the page"
    assert ("Arguments" in job) == (role in ("admin", "service")), "arguments are for admins"
    await hf.aclose()
