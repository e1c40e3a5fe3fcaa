"""A walk over every page that a dashboard has, by its own table of routes: in both themes, on a screen and on a phone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.pages import Pages
from tests.support.browsing import axe

if TYPE_CHECKING:
    from playwright.sync_api import Page

LOOKS = [("light", 1280), ("dark", 1280), ("dark", 390), ("light", 390)]
HEIGHT = 900
SHIFT_MAX = 0.02
"""As browsers measure it; a panel that pushes down what stands below it makes 0.05."""
SHIFTED = """() => new Promise(done => {
    let sum = 0;
    const add = list => { for (const entry of list.getEntries()) sum += entry.value };
    new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => done(sum)))) })"""


def addresses(groups: Iterable[Pages], examples: Mapping[str, Sequence[str]]) -> list[str]:
    """Every page. Those that need more than their path, or are worth seeing in several ways, stand in `examples`."""
    paths = [route.path for group in groups for route in group.routes if route.method == "GET"]
    unknown = sorted(path for path in paths if "{" in path and path not in examples)
    assert not unknown, f"say in `examples` where to look at {unknown}"
    return [address for path in paths for address in examples.get(path, [path])]


def walk(page: Page, places: Sequence[str]) -> list[str]:
    """What is wrong: with each page's accessibility, its width, and what moves while it loads."""
    wrong = []
    for place in places:
        _look(page, *LOOKS[0])
        answer = page.goto(place)
        assert answer is not None and answer.ok, place
        if page.locator("log-view").count():
            page.locator("log-view[data-ready]").wait_for()
        shifted = page.evaluate(SHIFTED)
        if shifted > SHIFT_MAX:
            wrong.append(f"{place}: what is there already moves while the rest loads ({shifted:.3f})")
        for theme, width in LOOKS:
            _look(page, theme, width)
            wrong += [f"{place} {theme} {width}: {finding}" for finding in axe(page)]
            wide = page.evaluate("() => document.documentElement.scrollWidth")
            if wide > width:
                wrong.append(f"{place} {theme}: {wide} pixels wide on a screen of {width}")
    return wrong


def _look(page: Page, theme: str, width: int) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": HEIGHT})
