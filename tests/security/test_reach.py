"""Who can reach what, asked of the application itself: no route escapes the tables, the door, or the check of the page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import fastapi.routing
import httpx
import pytest

from holdfast import Holdfast
from tests.web import extraction_scene, test_dashboard_pages, test_extraction_routes, test_matrix
from tests.web.extraction_scene import Shown
from tests.web.people import BASE, key_of

DOOR = {"GET /login", "POST /login", "POST /logout"}
OPEN = DOOR | {
    "GET /healthz",
    "GET /readyz",
    "GET /api/openapi.json",
    "POST /api/session",
    "DELETE /api/session",
    "POST /api/webhooks/in/{source}",
}
"""What somebody may ask without a login: each says by itself what it lets in."""
OWN_SECRET = {"POST /api/internal/recovery", "POST /api/internal/recovery/extraction-jobs"}
"""Behind a key or a signature of their own: no session opens them."""
OF_THE_CALLER = {"GET /api/extraction/health"}
"""For everybody who is known, about his own organization: `test_the_health_of_extractions_is_the_callers_own`."""
SAFE = ("GET", "HEAD")


@pytest.fixture
async def everything(sqlite_url: str) -> AsyncIterator[Shown]:
    """All that can be served: the API, the dashboard, and both of the extraction application."""
    hf = Holdfast(sqlite_url, api_rate=0)
    shown = Shown(hf)
    await hf.migrate()
    yield shown
    await hf.aclose()


def routes(shown: Shown) -> Iterator[str]:
    """`GET /api/jobs`, of everything that the application would answer, documented or not."""
    listed = getattr(fastapi.routing, "iter_route_contexts", iter)  # newer ones keep a router that was included whole
    for route in listed(shown.app.routes):
        methods = getattr(route, "methods", None)
        assert methods or route.path == "/static", f"{route.path} holds routes of its own, which nobody has judged"
        path = route.path.replace(":path}", "}")
        yield from (f"{method} {path}" for method in sorted(methods or ()) if method != "HEAD")


def tabled() -> set[str]:
    extraction = {
        call.replace(" ", " /api/organizations/{org}")
        .replace("/shop/", "/{project}/")
        .replace("{integration}", "{integration_id}")
        for call in test_extraction_routes.ROUTES
    }
    extraction = {call.replace("result/dependencies", "result/{kind}") for call in extraction}
    return (
        set(test_matrix.TABLE)
        | set(test_dashboard_pages.TABLE)
        | set(extraction_scene.TABLE)
        | extraction
        | DOOR
        | OF_THE_CALLER
    )


def filled(call: str) -> tuple[str, str]:
    """With something in the place of every name; what is there does not matter to somebody who may not even ask."""
    method, path = call.split(" ")
    for name, value in (("{run_no}", "1"), ("{org}", "acme"), ("{kind}", "dependencies")):
        path = path.replace(name, value)
    return method, "/".join("x" if part.startswith("{") else part for part in path.split("/"))


async def test_every_route_stands_in_a_table(everything: Shown) -> None:
    """A route that the documentation leaves out, or that an extension adds, is found all the same."""
    found = list(routes(everything))
    assert set(found) == tabled()
    assert len(found) == len(set(found)), "two routes of one address: the second one is never asked"


async def test_nobody_gets_past_the_door(everything: Shown) -> None:
    """Whatever the address: programs are told 401, people are led to the login, forms are refused."""
    wrong = []
    for call in set(routes(everything)) - OPEN:
        method, path = filled(call)
        answer = await everything.call("nobody", method, path)
        is_page = not path.startswith(("/api/", "/metrics"))
        expected = (303, True) if is_page and method == "GET" else (401, False)
        if (answer.status_code, answer.headers.get("location", "").startswith("/login")) != expected:
            wrong.append(f"{call}: {answer.status_code}")
    assert wrong == []


FOREIGN = [{}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.example"}]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_no_route_changes_anything_by_cookie_for_another_page(everything: Shown, headers: dict[str, str]) -> None:
    """With the session of the service role, which may do everything, and a page of somebody else, or of nobody who says so."""
    transport = httpx.ASGITransport(everything.app)
    wrong = []
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as browser:
        await browser.post("/api/session", json={"key": await key_of(everything.hf, "service")})
        secret = browser.cookies["__Host-holdfast_session"]
        for call in set(routes(everything)) - OPEN - OWN_SECRET:
            method, path = filled(call)
            if method in SAFE:
                continue
            answer = await browser.request(method, path, headers={**headers, "Cookie": f"__Host-holdfast_session={secret}"})
            if answer.status_code != 403 or "page of this server" not in answer.text:
                wrong.append(f"{call}: {answer.status_code}")
        assert wrong == []
        assert (await browser.get("/api/session", headers={"Cookie": f"__Host-holdfast_session={secret}"})).status_code == 200


async def test_names_of_another_organizations_things_open_nothing_on_pages(everything: Shown) -> None:
    """The owner of one organization sends what only another one has, without saying whose it is; nothing of it changes."""
    hf = everything.hf
    theirs = await test_dashboard_pages._set_up(everything, "other")
    await hf.tenants.set("acme", plan="pro")
    forms = {
        "/jobs/act": {"verb": "cancel", "id": theirs.job, "confirm": "1"},
        f"/jobs/{theirs.job}/cancel": {"confirm": "1"},
        f"/jobs/{theirs.job}/retry": {"confirm": "1"},
        "/schedules/run": {"schedule": "nightly", "of": "other", "confirm": "1"},
        "/schedules/pause": {"schedule": "nightly", "of": "other", "confirm": "1"},
        "/members/role": {"user": "ben", "role": "owner", "confirm": "1"},
        "/members/remove": {"user": "ben", "confirm": "1"},
        "/keys/revoke": {"key": theirs.key, "confirm": "1"},
        "/projects/rename": {"id": "web", "name": "taken"},
        "/projects/remove": {"id": "web", "confirm": "1"},
        **{
            f"/webhooks/{theirs.webhook}/{verb}": {"events": "*", "url": "https://evil.example/", "confirm": "1"}
            for verb in ("change", "rotate", "disable", "enable", "remove", "test", "replay")
        },
    }
    before = await _all_of(hf, "other")
    for path, form in forms.items():
        answer = await everything.call("acme owner", "POST", path, data=form)
        assert answer.status_code in (404, 409, 422) or "0 jobs" in answer.text.lower(), f"{path}: {answer.status_code}"
    assert (await everything.call("acme owner", "GET", f"/webhooks/{theirs.webhook}")).status_code == 404
    assert await _all_of(hf, "other") == before


async def _all_of(hf: Holdfast, tenant: str) -> list[object]:
    return [
        [(job.id, job.state, job.cancel_requested_at) for job in await hf.jobs(tenant=tenant)],
        await hf.keys.list(tenant=tenant),
        await hf.members.list(tenant),
        await hf.projects.list(tenant),
        await hf.webhooks.list(tenant=tenant),
        await hf.schedules.list(tenant=tenant),
    ]
