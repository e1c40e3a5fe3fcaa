"""The pages of extractions in a real browser: both themes and widths, and the story from a result to the next run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.extraction.sealing import Vault
from tests.support.extraction_pages import extracted_twice, registry
from tests.support.extractions import Staged
from tests.support.served import Served
from tests.support.walking import addresses, walk

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EXAMPLES = {
    "/extraction/project": ["/extraction/project?id=shop"],
    "/extraction/rows": [
        f"/extraction/rows?id=shop&kind={kind}" for kind in ("vulnerabilities", "dependencies", "findings", "secrets")
    ],
    "/extraction/runs": ["/extraction/runs?id=shop"],
    "/extraction/settings": ["/extraction/settings?id=shop"],
}


@pytest.fixture(scope="module")
def served(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of its own, that an extraction application has joined, with a project that was extracted twice."""
    path = tmp_path_factory.mktemp("extractions") / "holdfast.db"
    shutil.copyfile(sqlite_template, path)
    vault = Vault([b"k" * 32])
    server = Served(f"sqlite:///{path}", joined=lambda hf: Staged(hf, registry=registry, vault=vault), api_rate=0, grace=1)
    server.run(extracted_twice(server.application))
    integrations = server.application.extraction.integrations
    server.run(integrations.create("acme", "gitlab", token="t0k3n", name="Our GitLab", by="user:ana"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def admin_key(served: Served) -> str:
    return served.key("acme", "admin")


def test_every_page_is_accessible_fits_and_stands_still(page: Page, served: Served) -> None:
    """Light and dark, on a screen and on a phone: axe finds nothing, nothing is cut off, the browser does not complain."""
    groups = [group for extension in served.hf.extensions.values() for group in extension.pages]
    wrong = walk(page, addresses(groups, EXAMPLES))
    assert not wrong, "\n".join(wrong)


def test_search_then_extract_again_and_follow_it(page: Page, served: Served) -> None:
    """From the list by search to one package; a new run is asked for, confirmed, and seen to its end without a reload."""
    page.goto("/extraction")
    page.get_by_role("link", name="shop", exact=True).click()
    page.get_by_role("link", name="Dependencies 7").click()
    page.get_by_label("Search", exact=True).fill("lodash")
    page.get_by_label("Search", exact=True).press("Enter")
    page.wait_for_url("**q=lodash**")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("button", name="Extract again").click()
    page.locator("#ask[open] button.primary").click()
    page.locator(".said").wait_for()
    assert page.locator(".banner .state").inner_text() == "queued"
    page.get_by_role("button", name="Cancel", exact=True).wait_for()
    served.work()
    page.evaluate("() => htmx.trigger('#live', 'refresh')")
    page.locator(".banner .is-completed").wait_for()
    assert "Nothing has changed." in page.locator("main").inner_text()
    page.locator("tbody tr").first.get_by_role("link").click()
    page.locator("log-view[data-ready]").wait_for()


def test_results_are_there_without_javascript(browser: Browser, served: Served, admin_key: str) -> None:
    """Searched by a plain form, acted on by a question on a page of its own."""
    context = browser.new_context(base_url=served.base, java_script_enabled=False)
    assert context.request.post("/api/session", data={"key": admin_key}).ok
    page = context.new_page()
    page.goto("/extraction/rows?id=shop&kind=vulnerabilities")
    page.get_by_label("Search", exact=True).fill("minimist")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**q=minimist**")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("button", name="Extract again").click()
    assert page.get_by_role("heading", name="Extract shop?").is_visible()
    context.close()
