"""Every route, for everybody, on what is his own and on what is another tenant's: who gets what is written down here."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.web.scene import ROLES, Scene

Statuses = tuple[int, int, int, int, int]
"""For viewer, member, admin, owner, service."""
READ: Statuses = (200, 200, 200, 200, 200)
ABSENT: Statuses = (404, 404, 404, 404, 200)
"""Of another tenant; the service sees all of them."""


class Row(NamedTuple):
    own: Statuses
    foreign: Statuses | None = None
    """None: the route names nothing that could be somebody else's."""
    nobody: int = 401
    body: Any = None
    query: str = ""


def _from(first: str, status: int) -> Statuses:
    """This status from one role on, 403 below it."""
    return tuple(status if position >= ROLES.index(first) else 403 for position in range(5))  # type: ignore[return-value]


def _absent_from(first: str, status: int) -> Statuses:
    """The same for what is another tenant's: not there for those who may, forbidden for those who may not."""
    *tenants, _service = _from(first, 404)
    return (*tenants, status)  # type: ignore[return-value]


JOB = {"task": "add", "args": {"a": 1}}
TABLE: dict[str, Row] = {
    "GET /healthz": Row(READ, nobody=200),
    "GET /readyz": Row(READ, nobody=200),
    "GET /metrics": Row(_from("service", 200)),
    "GET /api/openapi.json": Row(READ, nobody=200),
    "POST /api/jobs": Row(_from("member", 202), _absent_from("member", 202), body={**JOB, "tenant": "{tenant}"}),
    "GET /api/jobs": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/jobs/stream": Row(READ, ABSENT, query="?tenant={tenant}"),
    "POST /api/jobs/cancel": Row(_from("member", 200), _absent_from("member", 200), body={"where": {"tenant": "{tenant}"}}),
    "POST /api/jobs/retry": Row(_from("member", 200), _absent_from("member", 200), body={"where": {"tenant": "{tenant}"}}),
    "GET /api/jobs/{job_id}": Row(READ, ABSENT),
    "DELETE /api/jobs/{job_id}": Row(_from("member", 204), _absent_from("member", 204)),
    "POST /api/jobs/{job_id}/cancel": Row(_from("member", 200), _absent_from("member", 200)),
    "POST /api/jobs/{job_id}/retry": Row(_from("member", 409), _absent_from("member", 409)),
    "GET /api/jobs/{job_id}/why": Row(READ, ABSENT),
    "GET /api/jobs/{job_id}/runs": Row(READ, ABSENT),
    "GET /api/jobs/{job_id}/events": Row(READ, ABSENT),
    "GET /api/jobs/{job_id}/runs/{run_no}/logs": Row(READ, ABSENT),
    "GET /api/jobs/{job_id}/runs/{run_no}/logs/stream": Row(READ, ABSENT),
    "GET /api/queues": Row(READ),
    "POST /api/queues/{name}/pause": Row(_from("service", 200)),
    "POST /api/queues/{name}/resume": Row(_from("service", 200)),
    "GET /api/workers": Row(_from("service", 200)),
    "GET /api/machines": Row(_from("admin", 200)),
    "POST /api/machines": Row(_from("service", 409)),
    "PUT /api/machines/pool": Row(_from("service", 409), body={"size": 1}),
    "POST /api/machines/{name}/start": Row(_from("service", 409)),
    "POST /api/machines/{name}/stop": Row(_from("service", 409)),
    "GET /api/machines/usage": Row(_from("admin", 200), _absent_from("admin", 200), query="?tenant={tenant}"),
    "GET /api/jobs/{job_id}/usage": Row(READ, ABSENT),
    "GET /api/tenants/{tenant}": Row(READ, ABSENT),
    "GET /api/tenants/{tenant}/why": Row(READ, ABSENT),
    "GET /api/tenants/{tenant}/limits": Row(READ, ABSENT),
    "PUT /api/tenants/{tenant}/limits": Row(_from("service", 200), _from("service", 200), body={"plan": "pro"}),
    "POST /api/tenants/{tenant}/pause": Row(_from("admin", 200), _absent_from("admin", 200)),
    "POST /api/tenants/{tenant}/resume": Row(_from("admin", 200), _absent_from("admin", 200)),
    "GET /api/budgets": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/budgets/{kind}": Row(READ, ABSENT, query="?tenant={tenant}"),
    "PUT /api/budgets/{kind}": Row(_from("service", 200), _from("service", 200), body={"cents": 5}, query="?tenant={tenant}"),
    "POST /api/budgets/{kind}/override": Row(
        _from("service", 200), _from("service", 200), body={"cents": 5}, query="?tenant={tenant}"
    ),
    "GET /api/breakers": Row(_from("service", 200)),
    "GET /api/breakers/{name}": Row(_from("service", 200)),
    "POST /api/breakers/{name}/open": Row(_from("service", 200), body={}),
    "POST /api/breakers/{name}/close": Row(_from("service", 200)),
    "GET /api/events": Row(_from("admin", 200), _absent_from("admin", 200), query="?tenant={tenant}"),
    "GET /api/dead": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/stats": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/keys": Row(_from("admin", 200), _absent_from("admin", 200), query="?tenant={tenant}"),
    "POST /api/keys": Row(_from("admin", 201), _absent_from("admin", 201), body={"role": "viewer", "tenant": "{tenant}"}),
    "GET /api/keys/{key_id}": Row(_from("admin", 200), _absent_from("admin", 200)),
    "DELETE /api/keys/{key_id}": Row(_from("admin", 204), _absent_from("admin", 204)),
    "GET /api/members": Row(_from("member", 200), _absent_from("member", 200), query="?tenant={tenant}"),
    "POST /api/members": Row(
        _from("owner", 201), _absent_from("owner", 201), body={"user_id": "new", "role": "viewer"}, query="?tenant={tenant}"
    ),
    "GET /api/members/{user_id}": Row(_from("member", 200), _absent_from("member", 200), query="?tenant={tenant}"),
    "PATCH /api/members/{user_id}": Row(
        _from("owner", 200), _absent_from("owner", 200), body={"role": "admin"}, query="?tenant={tenant}"
    ),
    "DELETE /api/members/{user_id}": Row(_from("owner", 204), _absent_from("owner", 204), query="?tenant={tenant}"),
    "GET /api/projects": Row(READ, ABSENT, query="?tenant={tenant}"),
    "POST /api/projects": Row(_from("admin", 201), _absent_from("admin", 201), body={"id": "new"}, query="?tenant={tenant}"),
    "GET /api/projects/{project_id}": Row(READ, ABSENT, query="?tenant={tenant}"),
    "PATCH /api/projects/{project_id}": Row(
        _from("admin", 200), _absent_from("admin", 200), body={"name": "Web"}, query="?tenant={tenant}"
    ),
    "DELETE /api/projects/{project_id}": Row(_from("admin", 204), _absent_from("admin", 204), query="?tenant={tenant}"),
    "GET /api/schedules": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/schedules/{name}": Row(READ, ABSENT, query="?tenant={tenant}"),
    "PUT /api/schedules/{name}": Row(
        _from("admin", 200),
        _absent_from("admin", 200),
        body={"task": "add", "seconds": 60, "args": {"a": 1}},
        query="?tenant={tenant}",
    ),
    "DELETE /api/schedules/{name}": Row(_from("admin", 204), _absent_from("admin", 204), query="?tenant={tenant}"),
    "POST /api/schedules/{name}/pause": Row(_from("admin", 200), _absent_from("admin", 200), query="?tenant={tenant}"),
    "POST /api/schedules/{name}/resume": Row(_from("admin", 409), _absent_from("admin", 409), query="?tenant={tenant}"),
    "POST /api/schedules/{name}/run": Row(_from("admin", 202), _absent_from("admin", 202), query="?tenant={tenant}"),
    "GET /api/batches": Row(READ, ABSENT, query="?tenant={tenant}"),
    "GET /api/batches/{batch_id}": Row(READ, ABSENT),
    "GET /api/webhooks": Row(_from("admin", 200), _absent_from("admin", 200), query="?tenant={tenant}"),
    "POST /api/webhooks": Row(
        _from("admin", 201), _absent_from("admin", 201), body={"url": "https://example.com/"}, query="?tenant={tenant}"
    ),
    "GET /api/webhooks/{webhook_id}": Row(_from("admin", 200), _absent_from("admin", 200)),
    "PATCH /api/webhooks/{webhook_id}": Row(_from("admin", 200), _absent_from("admin", 200), body={"events": ["job.*"]}),
    "DELETE /api/webhooks/{webhook_id}": Row(_from("admin", 204), _absent_from("admin", 204)),
    "POST /api/webhooks/{webhook_id}/rotate": Row(_from("admin", 200), _absent_from("admin", 200)),
    "POST /api/webhooks/{webhook_id}/test": Row(_from("admin", 202), _absent_from("admin", 202)),
    "POST /api/webhooks/{webhook_id}/replay": Row(_from("admin", 200), _absent_from("admin", 200)),
    "GET /api/webhooks/{webhook_id}/deliveries": Row(_from("admin", 200), _absent_from("admin", 200)),
    "GET /api/webhooks/{webhook_id}/deliveries/{delivery_id}": Row(_from("admin", 200), _absent_from("admin", 200)),
    "POST /api/webhooks/{webhook_id}/deliveries/{delivery_id}/replay": Row(_from("admin", 409), _absent_from("admin", 409)),
    "POST /api/webhooks/in/{source}": Row((404, 404, 404, 404, 404), nobody=404),
    "GET /api/session": Row(READ),
    "POST /api/session": Row((401, 401, 401, 401, 401), body={"key": "hf_" + "x" * 43}),
    "DELETE /api/session": Row((204, 204, 204, 204, 204), nobody=204),
    "POST /api/internal/recovery": Row((401, 401, 401, 401, 401)),
    "POST /api/internal/recovery/extraction-jobs": Row((401, 401, 401, 401, 401)),
}


def routes(scene: Scene) -> set[str]:
    """Every route as `GET /api/jobs`, from what the application documents of itself."""
    documented = scene.app.openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in documented.items() for method in methods} | {
        "GET /api/openapi.json"
    }


async def test_every_route_is_in_the_table(scene: Scene) -> None:
    """A new route says who gets what before it is let in."""
    assert routes(scene) == set(TABLE)


@pytest.mark.parametrize("call", sorted(TABLE))
async def test_who_gets_what(scene: Scene, call: str) -> None:
    """Own and foreign, for every role and for nobody; nobody is told whether something is there."""
    row = TABLE[call]
    for tenant, expected in (("acme", row.own), ("other", row.foreign)):
        if expected is None:
            continue
        found = tuple([await _status(scene, call, row, role, tenant) for role in ROLES])
        assert found == expected, f"{call} on {tenant}"
        assert await _status(scene, call, row, "nobody", tenant) == row.nobody


async def _status(scene: Scene, call: str, row: Row, role: str, tenant: str) -> int:
    """Of a call by somebody of acme (or by the service, or nobody) on something of a tenant that was just made for it."""
    caller = role if role in ("service", "nobody") else f"acme {role}"
    method, path = call.split(" ")
    names = await _things_of(scene, tenant, path, row.query)
    if path.endswith("/stream"):
        scene.app.state.web.stopping.set()  # it ends at once: what counts is whether it begins
    answer = await scene.call(caller, method, (path + row.query).format(**names), json=_filled(row.body, tenant))
    await _forget(scene, tenant, path)
    return answer.status_code


async def _things_of(scene: Scene, tenant: str, path: str, query: str) -> dict[str, str]:
    names = {"tenant": tenant, "name": "default", "run_no": "1", "kind": "ai", "source": "github"}
    if path.endswith("/override"):
        await scene.hf.budgets.set(tenant, "ai", cents=100)
    if "{job_id}" in path:
        job = await scene.hf.enqueue("add", {"a": 1}, tenant=tenant, max_attempts=1)
        names["job_id"] = job.id
        if "run_no" in path:
            await scene.hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["add"], limit=1)
            names["run_no"] = str((await scene.hf.get(job.id)).run_no)
            await scene.hf.tenants.set(tenant, limit=1000)
    if "{key_id}" in path:
        names["key_id"] = (await scene.hf.keys.create(tenant=tenant, role="viewer")).key.id
    if "{user_id}" in path:
        await scene.hf.members.add(tenant, "u1", role="viewer")
        names["user_id"] = "u1"
    if "{webhook_id}" in path:
        webhook = (await scene.hf.webhooks.set(tenant, "https://example.com/")).webhook
        names["webhook_id"] = webhook.id
        if "{delivery_id}" in path:
            names["delivery_id"] = (await scene.hf.webhooks.test(webhook.id)).id
    if "{project_id}" in path:
        await scene.hf.projects.create(tenant, "web")
        names["project_id"] = "web"
    if "/schedules/" in path:
        await scene.hf.schedules.set("default", "add", 3600, args={"a": 1}, tenant=tenant)
    if "{batch_id}" in path:
        names["batch_id"] = (await scene.hf.batch([scene.hf.tasks["add"].job(1)], tenant=tenant)).id
    return names


async def _forget(scene: Scene, tenant: str, path: str) -> None:
    for user in ("u1", "new"):
        if user in {member.user_id for member in await scene.hf.members.list(tenant)}:
            await scene.hf.members.remove(tenant, user)
    for project in ("web", "new"):
        if project in {known.id for known in await scene.hf.projects.list(tenant)}:
            await scene.hf.projects.remove(tenant, project)
    for schedule in await scene.hf.schedules.list(tenant=tenant):
        await scene.hf.schedules.remove(schedule.name, tenant=tenant)


def _filled(body: Any, tenant: str) -> Any:
    if isinstance(body, dict):
        return {name: _filled(value, tenant) for name, value in body.items()}
    return tenant if body == "{tenant}" else body
