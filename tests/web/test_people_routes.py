"""/api/keys, /api/members, /api/projects: who may what, and another tenant's things are not there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Holdfast
from tests.web.people import client, key_of, served

ROLES = ("viewer", "member", "admin", "owner", "service")
ALLOWED: dict[tuple[str, str], dict[str, int]] = {
    ("GET", "/api/keys?tenant=acme"): {"admin": 200, "owner": 200, "service": 200},
    ("POST", "/api/keys"): {"admin": 201, "owner": 201, "service": 201},
    ("GET", "/api/keys/{key}"): {"admin": 200, "owner": 200, "service": 200},
    ("DELETE", "/api/keys/{key}"): {"admin": 204, "owner": 204, "service": 204},
    ("GET", "/api/members?tenant=acme"): {"member": 200, "admin": 200, "owner": 200, "service": 200},
    ("POST", "/api/members?tenant=acme"): {"owner": 201, "service": 201},
    ("GET", "/api/members/u1?tenant=acme"): {"member": 200, "admin": 200, "owner": 200, "service": 200},
    ("PATCH", "/api/members/u1?tenant=acme"): {"owner": 200, "service": 200},
    ("DELETE", "/api/members/u1?tenant=acme"): {"owner": 204, "service": 204},
    ("GET", "/api/projects?tenant=acme"): {"viewer": 200, "member": 200, "admin": 200, "owner": 200, "service": 200},
    ("POST", "/api/projects?tenant=acme"): {"admin": 201, "owner": 201, "service": 201},
    ("GET", "/api/projects/web?tenant=acme"): {"viewer": 200, "member": 200, "admin": 200, "owner": 200, "service": 200},
    ("PATCH", "/api/projects/web?tenant=acme"): {"admin": 200, "owner": 200, "service": 200},
    ("DELETE", "/api/projects/web?tenant=acme"): {"admin": 204, "owner": 204, "service": 204},
    ("GET", "/api/session"): {"viewer": 200, "member": 200, "admin": 200, "owner": 200, "service": 200},
}
"""What is not here is forbidden: 403."""
BODIES: dict[str, Any] = {
    "POST /api/keys": {"tenant": "acme", "role": "viewer"},
    "POST /api/members?tenant=acme": {"user_id": "new", "role": "viewer"},
    "PATCH /api/members/u1?tenant=acme": {"role": "member"},
    "POST /api/projects?tenant=acme": {"id": "new"},
    "PATCH /api/projects/web?tenant=acme": {"name": "Web"},
}


async def furnish(hf: Holdfast) -> str:
    """A key, a member and a project of acme; the key's id."""
    await hf.members.add("acme", "u1", "viewer")
    await hf.projects.create("acme", "web")
    return (await hf.keys.create(tenant="acme", role="viewer")).key.id


@pytest.mark.parametrize(("method", "path"), ALLOWED)
async def test_each_role_may_what_is_written_down(hf: Holdfast, method: str, path: str) -> None:
    """The table above is what holds."""
    app = served(hf)
    seen = {}
    for role in ROLES:
        async with hf.transaction() as tx:
            for table in ("members", "projects"):
                await tx.execute(f"DELETE FROM {'holdfast_' if hf.store.name == 'sqlite' else 'holdfast.'}{table}")
        key_id = await furnish(hf)
        async with client(app, await key_of(hf, role)) as caller:
            answer = await caller.request(method, path.replace("{key}", key_id), json=BODIES.get(f"{method} {path}"))
        seen[role] = answer.status_code
    assert seen == {role: ALLOWED[method, path].get(role, 403) for role in ROLES}


@pytest.mark.parametrize(("method", "path"), [one for one in ALLOWED if one[1] != "/api/session"])
async def test_another_tenants_things_are_not_there(hf: Holdfast, method: str, path: str) -> None:
    """An owner of one organization gets 404 for the other's, and nothing changes."""
    key_id = await furnish(hf)
    async with client(served(hf), await key_of(hf, "owner", "globex")) as stranger:
        path = path.replace("{key}", key_id)
        answer = await stranger.request(method, path, json=BODIES.get(f"{method} {path}"))
        bare = await stranger.request(method, path.partition("?")[0], json=None)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "acme" not in bare.text
    assert (await hf.members.get("acme", "u1")).role == "viewer"
    assert (await hf.projects.get("acme", "web")).name == "web"
    assert (await hf.keys.get(key_id)).revoked_at is None


@pytest.mark.parametrize(("method", "path"), ALLOWED)
async def test_nobody_gets_in(hf: Holdfast, method: str, path: str) -> None:
    """401 as problem+json, before a byte of the body is read."""
    async with client(served(hf)) as nobody:
        answer = await nobody.request(method, path, content=b"{ not json")
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert (answer.json()["code"], answer.headers["www-authenticate"]) == ("unauthenticated", "Bearer")


async def test_a_key_made_over_http_works_and_is_shown_once(hf: Holdfast) -> None:
    """Its secret is in the answer to its making and nowhere else."""
    app = served(hf)
    async with client(app, await key_of(hf, "admin")) as admin:
        made = (await admin.post("/api/keys", json={"role": "member", "expires": "90d", "name": "ci"})).json()
        listed = await admin.get("/api/keys")
        one = await admin.get(f"/api/keys/{made['id']}")
    async with client(app, made["secret"]) as new:
        me = (await new.get("/api/session")).json()
    assert me == {"tenant": "acme", "role": "member", "actor": f"key:{made['id']}"}
    assert made["secret"] not in listed.text + one.text
    assert made["created_by"].startswith("key:")


@pytest.mark.parametrize(("role", "above"), [("admin", "owner"), ("admin", "service"), ("owner", "service")])
async def test_nobody_makes_or_revokes_a_key_above_himself(hf: Holdfast, role: str, above: str) -> None:
    """403, and a service key is not even there for a tenant."""
    stronger = await hf.keys.create(tenant=None if above == "service" else "acme", role=above)
    async with client(served(hf), await key_of(hf, role)) as caller:
        made = await caller.post("/api/keys", json={"role": above})
        revoked = await caller.delete(f"/api/keys/{stronger.key.id}")
    assert (made.status_code, revoked.status_code) == (403, 404 if above == "service" else 403)
    assert (await hf.keys.get(stronger.key.id)).revoked_at is None


async def test_a_service_makes_service_keys(hf: Holdfast) -> None:
    """And keys of any tenant, which it names."""
    async with client(served(hf), await key_of(hf, "service")) as service:
        own = await service.post("/api/keys", json={"role": "service"})
        nobodys = await service.post("/api/keys", json={"role": "member"})
        somebodys = await service.get("/api/members")
    assert [own.status_code, nobodys.status_code, somebodys.status_code] == [201, 422, 422]


async def test_a_revoked_key_is_out(hf: Holdfast) -> None:
    """Also the one that revoked itself; and revoking twice is a conflict."""
    app = served(hf)
    made = await hf.keys.create(tenant="acme", role="admin")
    async with client(app, made.secret) as admin:
        first = await admin.delete(f"/api/keys/{made.key.id}")
        after = await admin.get("/api/keys")
    async with client(app, await key_of(hf, "admin")) as other:
        second = await other.delete(f"/api/keys/{made.key.id}")
    assert [first.status_code, after.status_code, second.status_code] == [204, 401, 409]
    assert second.json()["code"] == "already_revoked"


async def test_the_last_owner_stays_over_http_too(hf: Holdfast) -> None:
    """409 `last_owner`."""
    await hf.members.add("acme", "boss", "owner")
    async with client(served(hf), await key_of(hf, "owner")) as owner:
        removed = await owner.delete("/api/members/boss")
        demoted = await owner.patch("/api/members/boss", json={"role": "admin"})
    assert [(answer.status_code, answer.json()["code"]) for answer in (removed, demoted)] == [(409, "last_owner")] * 2


async def test_pages_follow_each_other(hf: Holdfast) -> None:
    """`next_cursor` of one is `cursor` of the next, until it is null."""
    for no in range(5):
        await hf.members.add("acme", f"auth0|{no}/ü", "viewer")
    async with client(served(hf), await key_of(hf, "owner")) as owner:
        users: list[str] = []
        cursor: str | None = None
        for _ in range(3):
            page = (await owner.get("/api/members", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
            users += [member["user_id"] for member in page["items"]]
            cursor = page["next_cursor"]
    assert (users, cursor) == ([f"auth0|{no}/ü" for no in range(5)], None)


async def test_a_location_leads_to_what_was_made(hf: Holdfast) -> None:
    """Whatever the user's id is made of."""
    async with client(served(hf), await key_of(hf, "owner")) as owner:
        for path, body in (("keys", {}), ("members", {"user_id": "auth0|7/ü ?#"}), ("projects", {"id": "a/b c%"})):
            made = await owner.post(f"/api/{path}", json=body)
            found = await owner.get(made.headers["location"])
            assert (made.status_code, found.status_code) == (201, 200)
            assert found.json().items() <= made.json().items()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/keys", {"role": "king"}),
        ("/api/keys", {"expires": "soon"}),
        ("/api/keys", {"expires": "0d"}),
        ("/api/keys", {"expires": "999999w"}),
        ("/api/keys", {"name": ""}),
        ("/api/keys", {"nmae": "x"}),
        ("/api/members", {"user_id": "a\0b"}),
        ("/api/members", {"user_id": "\ud800"}),
        ("/api/members", {"user_id": "u", "role": "service"}),
        ("/api/projects", {}),
        ("/api/projects", {"id": "x" * 201}),
    ],
)
async def test_what_makes_no_sense_is_refused(hf: Holdfast, path: str, body: dict[str, Any]) -> None:
    """4xx with a code, and nothing is written."""
    async with client(served(hf), await key_of(hf, "owner")) as owner:
        answer = await owner.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["code"]
    assert (len(await hf.keys.list()), await hf.members.list("acme"), await hf.projects.list("acme")) == (1, [], [])
