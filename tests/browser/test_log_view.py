"""The log panel: what it shows, and how it follows a job (SPEC of the dashboard, cases P6 and D38)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.browsing import axe, seen
from tests.support.panels import Talk

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.served import Served

MESSAGES = "() => [...document.querySelectorAll('.lv-msg')].map(one => one.textContent)"
READY = "() => document.querySelector('log-view').dataset.ready !== undefined"


def attribute(name: str, value: str) -> str:
    return f"() => document.querySelector('log-view').dataset.{name} === '{value}'"


def messages(page: Page) -> list[str]:
    found: list[str] = page.evaluate(MESSAGES)
    return found


def open_panel(page: Page, job: str, **more: Any) -> None:
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in more.items())
    page.goto(f"/test/panel/{job}?{query}")
    seen(page, READY)


@pytest.mark.case("P6")
def test_lines_show_time_level_step_duration_and_come_live(page: Page, served: Served) -> None:
    """Each line has its time, a dot of its level, its message and a badge; later lines come by themselves."""
    talk = Talk(served, "live")
    talk.say("cloning", step="clone")
    open_panel(page, talk.id)
    talk.say("slow answer", level="warning", duration_ms=5200)
    talk.say("broken", level="error")
    talk.say("mended", level="success")
    seen(page, f"({MESSAGES})().length === 4")
    assert messages(page) == ["clone cloning", "slow answer", "broken", "mended"]
    levels = page.evaluate("() => [...document.querySelectorAll('.lv-line')].map(line => line.dataset.level)")
    assert levels == ["info", "warning", "error", "success"]
    assert page.evaluate("/^\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('.lv-time').textContent)")
    assert page.locator("#L2 .lv-ms").text_content() == "5.2 s"
    talk.end()
    seen(page, attribute("outcome", "completed"))
