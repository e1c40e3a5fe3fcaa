"""The dashboard is closed, keeps to itself, and shows whatever it is given as text."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from holdfast import Abort, Holdfast, current
from holdfast.web.access import Caller, Role
from holdfast.web.dashboard.frame import local_path
from holdfast.web.dashboard.views import GROUPS
from tests.web.people import BASE, key_of
from tests.web.scene import Scene, add_tasks
from tests.web.test_mounting import in_django, in_fastapi, in_starlette

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; DROP TABLE jobs; --",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x1b[0m \u202eRTL\u202c 🧨",
    "javascript:alert(1)",
    "a/b?c=d#e&f%00",
]
ELSEWHERE = {"/jump", "/projects/show"}
PAGES = [
    route.path
    for group in GROUPS
    for route in group.routes
    if route.method == "GET" and "{" not in route.path and route.path not in ELSEWHERE
]


@pytest.fixture
async def sqlite_hf(sqlite_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(sqlite_url)
    yield app
    await app.aclose()


class Outline(HTMLParser):
    """What a browser would load, run or open."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [f"{tag} {name}" for name, _ in attrs if name.startswith("on") or name == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and not given.get("src")) else []
        self.addresses += [str(given[name]) for name in ("href", "src", "action", "hx-get", "hx-post") if given.get(name)]


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    return parser


async def test_pages_keep_to_themselves(sqlite_hf: Holdfast) -> None:
    """A policy of `'self'`, no script or style inside the page, and no address of another host."""
    scene = Scene(sqlite_hf)
    job_id = await scene.enqueue()
    for path in (*PAGES, f"/jobs/{job_id}", "/login", "/nothing", "/organization?tenant=acme"):
        answer = await scene.get("service", path, headers={"Accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy and "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert set(re.findall(r"'[^']*'", policy)) == {"'none'", "'self'"}
        found = outline(answer.text)
        assert found.inline == []
        assert [address for address in found.addresses if not re.match(r"(/(?!/)|#)", address)] == []


async def test_static_files_may_be_kept_and_carry_the_policy(sqlite_hf: Holdfast) -> None:
    """Named by their content they never change; a worker's policy is the one its script comes with."""
    scene = Scene(sqlite_hf)
    page = (await scene.get("nobody", "/login")).text
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
        answer = await scene.get("nobody", html.unescape(address))
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
    assert (await scene.get("nobody", "/static/../frame.py")).status_code == 404


@pytest.mark.case("D38")
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_hostile_strings_are_shown_as_text(sqlite_hf: Holdfast, hostile: str) -> None:
    """In every field that somebody else can fill: names, tags, arguments, errors, log lines, results, addresses."""
    scene = Scene(sqlite_hf)
    hf = scene.hf
    name = hostile.replace("\x1b", "")

    @hf.task(name=f"t{name}", queue=f"q{name}"[:200], max_attempts=1)
    async def nasty(value: str) -> str:
        current().log.error(value, step=name, detail=value)
        raise Abort(value, code="nasty")

    await hf.tenants.set(name)
    await hf.members.add(name, name, "owner", by=name)
    await hf.projects.create(name, name, name=name)
    await hf.keys.create(tenant=name, role="viewer", name=name)
    made = nasty.options(tenant=name, project=name, tags=[name[:90]], meta={name: name}, order=name, unique=name)
    job = await made.enqueue(hostile)
    await hf.run_worker(exit_when_idle=0.0)
    asked = [(path, {"tenant": name}) for path in PAGES]
    asked += [(path, {}) for path in PAGES]
    asked += [
        (f"/jobs/{job.id}", {}),
        ("/projects/show", {"tenant": name, "id": name}),
        ("/jobs", {"task": name, "queue": name, "tag": name, "project": name}),
        ("/jump", {"q": name}),
        ("/login", {"next": name}),
    ]
    for path, query in asked:
        answer = await scene.get("service", path, params=query)
        assert answer.status_code in (200, 303), f"{path}: {answer.text[:300]}"
        found = outline(answer.text)
        assert found.inline == [] and "<img" not in answer.text
        assert not [address for address in found.addresses if address.startswith(("javascript", "//", "http"))]
        assert "49" not in re.findall(r">\s*(49)\{", answer.text)
    shown = html.unescape((await scene.get("service", f"/jobs/{job.id}")).text)
    assert hostile.replace("\x1b", "") in shown or hostile in shown


async def test_a_log_is_readable_without_javascript(sqlite_hf: Holdfast) -> None:
    """The newest 200 lines, the error, the runs and the button are in the page as it is sent."""
    scene = Scene(sqlite_hf)

    @scene.hf.task(max_attempts=1)
    async def talks() -> None:
        for no in range(1, 251):
            current().log.info(f"line number {no} of it")
        raise Abort("the end of it", code="ended_badly")

    job = await talks.options(tenant="acme").enqueue()
    await scene.work()
    page = (await scene.get("acme member", f"/jobs/{job.id}")).text
    assert "line number 250 of it" in page and "line number 60 of it" in page and "line number 40 of it" not in page
    again = (await scene.get("acme member", f"/jobs/{job.id}", headers={"HX-Request": "true"})).text
    assert "line number 250 of it" not in again and "the end of it" in again, "a page that reads itself again has the panel"
    form, panel = f'action="/jobs/{job.id}/retry"', f'<log-view job="{job.id}"'
    for word in ("the end of it", "ended_badly", "Attempt 1", form, panel):
        assert word in page


# -- logging in --------------------------------------------------------------------------------------------------------


def browser(app: Any) -> httpx.AsyncClient:
    """As a browser does it: with cookies, saying where a form comes from."""
    headers = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers)


async def test_a_key_logs_in_without_javascript(sqlite_hf: Holdfast) -> None:
    """To where one wanted to go, by a cookie that scripts cannot read; logging out ends it."""
    async with browser(sqlite_hf.asgi()) as client:
        wrong = await client.post("/login", data={"key": "hf_" + "x" * 43})
        assert wrong.status_code == 401 and "not known" in wrong.text
        key = await key_of(sqlite_hf, "viewer")
        done = await client.post("/login", data={"key": key, "next": "/dead"})
        assert (done.status_code, done.headers["location"]) == (303, "/dead")
        cookie = done.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and key not in cookie
        assert (await client.get("/dead")).status_code == 200
        assert (await client.post("/logout")).headers["location"] == "/login"
        assert (await client.get("/dead")).status_code == 303


async def test_a_one_time_link_logs_in_once(sqlite_hf: Holdfast) -> None:
    """What stands behind the # is sent by a form, works once, and is in no address that a server sees."""
    app = sqlite_hf.asgi()
    link = await app.state.web.authenticator.one_time_link(BASE)
    where, _, secret = link.partition("#")
    assert where == f"{BASE}/login"
    async with browser(app) as client:
        assert (await client.post("/login", data={"link": secret})).status_code == 303
        assert (await client.get("/workers")).status_code == 200
    async with browser(app) as client:
        assert (await client.post("/login", data={"link": secret})).status_code == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_sites_form_is_refused(sqlite_hf: Holdfast, site: str) -> None:
    """With the cookie of somebody who may: nothing is done, whether logging in, out or acting."""
    app = sqlite_hf.asgi()
    async with browser(app) as client:
        await client.post("/login", data={"key": await key_of(sqlite_hf, "service")})
        for path in ("/queues/pause", "/logout", "/login"):
            answer = await client.post(path, data={"queue": "mail", "confirm": "1"}, headers={"Sec-Fetch-Site": site})
            assert answer.status_code == 403
        assert (await sqlite_hf.queues.get("mail")).paused_at is None
        assert (await client.get("/workers")).status_code == 200


@pytest.mark.parametrize("asked", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\nb", ""])
def test_nobody_is_sent_to_another_host(asked: str) -> None:
    """Neither by the login's `next` nor by a form's `back`."""
    assert local_path(asked) is None


# -- mounting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mount", "prefix"),
    [(in_fastapi, "/jobs"), (in_starlette, "/inner/jobs"), (in_django, "/jobs")],
    ids=["fastapi", "starlette", "django"],
)
async def test_the_dashboard_works_below_a_prefix_with_the_hosts_login(sqlite_hf: Holdfast, mount: Any, prefix: str) -> None:
    """Every link and form begins with the prefix, and a form of it works."""
    add_tasks(sqlite_hf)
    host = mount(sqlite_hf.asgi(authenticate=lambda request: Caller("acme", Role.ADMIN, "user:ana")))
    job = await sqlite_hf.enqueue("add", {"a": 1}, tenant="acme")
    async with browser(host) as client:
        for path in ("/", "/jobs", f"/jobs/{job.id}", "/organization"):
            answer = await client.get(prefix + path)
            assert answer.status_code == 200
            assert [each for each in outline(answer.text).addresses if not each.startswith((f"{prefix}/", "#"))] == []
        assert (await client.get(f"{prefix}/static/dashboard.css")).status_code == 200
        done = await client.post(f"{prefix}/jobs/{job.id}/cancel", data={"confirm": "1"})
        assert done.headers["location"] == f"{prefix}/jobs/{job.id}?done=cancelled"
    assert (await sqlite_hf.get(job.id)).cancel_requested_by == "user:ana"


async def test_an_address_that_is_nothing_is_a_page_for_people_only(sqlite_hf: Holdfast) -> None:
    """Programs keep getting their problem, also where they ask below /api as a browser would."""
    scene = Scene(sqlite_hf)
    people = await scene.get("nobody", "/nothing", headers={"Accept": "text/html"})
    assert (people.status_code, people.headers["content-type"]) == (404, "text/html; charset=utf-8")
    for path, accept in (("/nothing", "*/*"), ("/api/nothing", "text/html")):
        programs = await scene.get("nobody", path, headers={"Accept": accept})
        assert (programs.status_code, programs.json()["code"]) == (404, "not_found")


async def test_a_page_that_fails_tells_nothing_but_its_number(sqlite_hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own mistake is a page too, without what went wrong."""
    scene = Scene(sqlite_hf)

    async def broken(**asked: Any) -> Any:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(scene.hf, "workers", broken)
    monkeypatch.setattr(scene.hf, "events", broken)
    answer = await scene.get("service", "/workers")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.text and "secret of the house" not in answer.text
