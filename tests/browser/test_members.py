"""Two people in two browsers: what one of them does to the other's access is felt there."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jwt
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Holdfast
from tests.support.browsing import PATIENCE_SECONDS, Complaints
from tests.support.panels import Talk, messages, until_messages, until_panel, with_panel_pages
from tests.support.served import Served
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SECRET = "a-secret-that-is-long-enough-for-hs256"
COOKIE = "login"


def behind_a_gateway(hf: Holdfast, app: ASGIApp) -> ASGIApp:
    """As in front of many dashboards: the browser has a cookie, and the application behind gets the token in it."""
    inner = with_panel_pages(hf, app)

    async def gateway(scope: Scope, receive: Receive, send: Send) -> None:
        sent = dict(scope.get("headers", ())).get(b"cookie", b"").decode()
        token = next((part.partition("=")[2] for part in sent.split("; ") if part.startswith(f"{COOKIE}=")), None)
        if token:
            others = [pair for pair in scope["headers"] if pair[0] != b"cookie"]
            scope = {**scope, "headers": [*others, (b"authorization", f"Bearer {token}".encode())]}
        await inner(scope, receive, send)

    return gateway


@pytest.fixture
def shared(sqlite_template: Path, tmp_path: Path) -> Iterator[Served]:
    """Somewhere that people log in to by tokens of an identity provider."""
    shutil.copyfile(sqlite_template, tmp_path / "holdfast.db")
    url = f"sqlite:///{tmp_path / 'holdfast.db'}"
    server = Served(url, behind_a_gateway, stream_check=0.5, api_rate=0, grace=1, jwt_secret=SECRET)
    server.run(server.hf.tenants.set("acme", limit=50, queue_depth=1000))
    server.run(server.hf.members.add("acme", "olga", "owner"))
    server.run(server.hf.members.add("acme", "ana", "member"))
    yield server
    server.close()


class Visit:
    """One person's browser."""

    def __init__(self, browser: Browser, served: Served, user: str) -> None:
        self.context = browser.new_context(base_url=served.base, reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.complaints = Complaints(self.context, served.base)
        claims = {"aud": "authenticated", "sub": user, "exp": int(time.time()) + 3600, "role": "authenticated"}
        token = jwt.encode(claims, SECRET, algorithm="HS256")
        self.context.add_cookies([{"name": COOKIE, "value": token, "url": served.base}])
        self.page: Page = self.context.new_page()


@pytest.fixture
def visits(browser: Browser, shared: Served) -> Iterator[tuple[Visit, Visit]]:
    """An owner and a member; whatever their browsers complain about fails the test, unless it was allowed."""
    both = Visit(browser, shared, "olga"), Visit(browser, shared, "ana")
    yield both
    for visit in both:
        visit.context.close()
    assert [visit.complaints.all() for visit in both] == [[], []]


@pytest.mark.case("P8")
def test_a_member_who_is_removed_is_out_at_once(visits: tuple[Visit, Visit], shared: Served) -> None:
    """An owner removes her by the page: her open log stops and says so, her stream ends, and her next click is refused."""
    talk = Talk(shared, "removal")
    talk.say("seen")
    olga, ana = visits
    ana.page.goto(f"/jobs/{talk.id}")
    assert until_messages(ana.page, 1) == ["seen"]
    until_panel(ana.page, "mode", "live")
    until_sync(lambda: shared.streams() == 1, PATIENCE_SECONDS)

    ana.complaints.allow("status of 401", "status of 403", "Error Code 403")
    olga.page.goto("/members")
    olga.page.locator("tr", has_text="ana").get_by_role("button", name="Remove").click()
    olga.page.locator("#ask[open] button.primary, #ask[open] button.danger").first.click()
    olga.page.locator(".said").wait_for()
    assert shared.run(shared.hf.members.roles_of("ana")) == {}

    until_panel(ana.page, "mode", "gone")
    talk.say("not for her")
    until_sync(lambda: shared.streams() == 0, PATIENCE_SECONDS)
    assert messages(ana.page) == ["seen"]
    ana.page.get_by_role("navigation").get_by_role("link", name="Jobs", exact=True).click()
    ana.page.get_by_text("This user is a member of no organization").wait_for()
    assert talk.id not in ana.page.content()
    talk.end()
    shared.run(shared.hf.wait_for_result(talk.id, timeout=50))
