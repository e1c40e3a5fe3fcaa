"""The harness itself: what it promises to catch, it catches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.browsing import Complaints, axe
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from tests.support.served import Served


def test_whoever_is_logged_in_can_ask_the_api(page: Page) -> None:
    """The page has the cookie of a session."""
    assert page.request.get("/api/session").json()["role"] == "admin"


def test_errors_and_strange_hosts_are_noticed(context: BrowserContext, served: Served) -> None:
    """An error in the console, an error of a script and a request that leaves the server are complaints."""
    heard = Complaints(context, served.base)
    page = context.new_page()
    page.goto("/test/page.css")
    page.evaluate("console.error('shown in the console')")
    page.evaluate("setTimeout(() => { throw new Error('thrown by a script') })")
    page.evaluate("fetch('http://127.0.0.2:9/elsewhere').catch(() => {})")

    def said() -> bool:
        page.evaluate("1")
        text = " ".join(heard.all())
        return all(part in text for part in ("shown in the console", "thrown by a script", "127.0.0.2:9"))

    until_sync(said, 60)


def test_axe_finds_what_is_wrong(page: Page) -> None:
    """A picture without words is found."""
    page.set_content("<html lang=en><title>x</title><main><h1>x</h1><img src='data:,'></main>")
    assert any("image-alt" in finding for finding in axe(page))
