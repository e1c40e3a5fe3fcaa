"""What a browser test needs beside its page: waiting, complaints, and the check of accessibility."""

from __future__ import annotations

import importlib.resources
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

PATIENCE_SECONDS = 60.0


def seen(page: Page, expression: str, arg: Any = None, timeout: float = PATIENCE_SECONDS) -> Any:
    """Ask the page again and again until the answer is true, and return it.

    Playwright's own `wait_for_function` evaluates in the page, which our policy forbids; its `expect` describes the whole
    page while it waits, which takes seconds with 20,000 lines.
    """

    def answer_of_the_page() -> Any:
        return page.evaluate(expression, arg)

    return until_sync(answer_of_the_page, timeout)


class Complaints:
    """What a browser says against our pages: errors in its console, errors of scripts, requests to other hosts."""

    def __init__(self, context: BrowserContext, base: str) -> None:
        self._bases: tuple[str, ...] = (f"{base}/",)
        self._allowed: tuple[str, ...] = ()
        self._said: list[str] = []
        context.on("console", lambda message: self._hear(message.type in ("error", "warning"), "console", message.text))
        context.on("weberror", lambda error: self._hear(True, "script", str(error.error)))
        context.on("request", lambda request: self._hear(self._is_foreign(request.url), "request", request.url))

    def allow(self, *parts: str) -> None:
        """A test that cuts the line expects the browser to say so."""
        self._allowed += parts

    def also_at(self, base: str) -> None:
        """The server has another address too."""
        self._bases += (f"{base}/",)

    def all(self) -> list[str]:
        return [said for said in self._said if not any(part in said for part in self._allowed)]

    def _hear(self, matters: bool, what: str, text: str) -> None:
        if matters:
            self._said.append(f"{what}: {text}")

    def _is_foreign(self, url: str) -> bool:
        return not url.startswith((*self._bases, "data:", "blob:", "about:"))


@cache
def _axe_source() -> str:
    return importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def axe(page: Page, within: str = "html") -> list[str]:
    """What axe finds wrong in the page, or in the part of it that a selector names: one sentence each."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_axe_source())
    found = page.evaluate("within => axe.run(within, {resultTypes: ['violations']})", within)
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} {node['failureSummary']}"
        for violation in found["violations"]
        for node in violation["nodes"][:3]
    ]
