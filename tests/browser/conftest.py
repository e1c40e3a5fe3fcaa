"""Browser tests: one Chromium for all, a page that listens for complaints, a real server behind it.

They have processes of their own (`pytest tests/browser`): Playwright's event loop and those of other tests do not go together.
Where there is no browser they are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.browsing import PATIENCE_SECONDS, Complaints
from tools.browser import MISSING, find_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from tests.support.served import Served

HERE = Path(__file__).parent
HEIGHT = 900
FLAGS = [
    "--no-sandbox",  # Chromium refuses root without it
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Last, and never in one process of pytest-xdist with tests that bring their own event loop."""
    ours = [item for item in items if HERE in item.path.parents]
    reason = None
    if "PYTEST_XDIST_WORKER" in os.environ and len(ours) < len(items):
        reason = "browser tests have a process of their own: `pytest tests/browser`"
    elif not find_browser():
        reason = MISSING
    for item in ours:
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = [item for item in items if item not in ours] + ours


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=find_browser(), args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def served(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Holdfast server with a database of its own, for all tests of this folder: each makes its own jobs."""
    from tests.support.panels import with_panel_pages
    from tests.support.served import Served

    path = tmp_path_factory.mktemp("served") / "holdfast.db"
    shutil.copyfile(sqlite_template, path)
    server = Served(f"sqlite:///{path}", with_panel_pages, stream_check=0.5, api_rate=0, grace=1)
    server.run(server.hf.tenants.set("acme", limit=50, queue_depth=1000))
    yield server
    server.close()


@pytest.fixture(scope="session")
def admin_key(served: Served) -> str:
    return served.key("acme", "admin")


@pytest.fixture
def theme() -> str:
    """`light` or `dark`; parametrize it where both matter."""
    return "light"


@pytest.fixture
def width() -> int:
    """Pixels; 390 is a phone."""
    return 1280


@pytest.fixture
def context(browser: Browser, served: Served, theme: str, width: int) -> Iterator[BrowserContext]:
    """A browser profile that nobody has logged in to."""
    opened = browser.new_context(
        base_url=served.base, color_scheme=theme, viewport={"width": width, "height": HEIGHT}, reduced_motion="reduce"
    )
    opened.set_default_timeout(PATIENCE_SECONDS * 1000)
    yield opened
    opened.close()


@pytest.fixture
def complaints(context: BrowserContext, served: Served) -> Iterator[Complaints]:
    """Whatever the browser complains about, in whatever tab, fails the test, unless it was allowed."""
    heard = Complaints(context, served.base)
    yield heard
    assert heard.all() == []


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints, admin_key: str) -> Page:
    """A tab of somebody who is logged in as an admin of `acme`."""
    log_in(context, admin_key)
    return context.new_page()


def log_in(context: BrowserContext, key: str) -> None:
    answer = context.request.post("/api/session", data={"key": key})
    assert answer.ok, answer.text()
