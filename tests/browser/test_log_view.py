"""The log panel: what it shows of a run, and what people can do in it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.support.browsing import axe, seen
from tests.support.panels import Talk, messages, open_panel, until_messages, until_panel
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from tests.support.served import Served


STANDS_STILL = """async () => {
    const scroll = document.querySelector('.lv-scroll'), from = scroll.scrollTop;
    for (let frame = 0; frame < 20; frame++) await new Promise(done => requestAnimationFrame(done));
    return scroll.scrollTop === from }"""


AT_END = "() => { const s = document.querySelector('.lv-scroll'); return s.scrollHeight - s.scrollTop - s.clientHeight < 40 }"


def _red_and_green(page: Page) -> tuple[int, int]:
    numbers = page.evaluate("() => getComputedStyle(document.querySelector('.lv-state')).color.match(/\\d+/g).map(Number)")
    return numbers[0], numbers[1]


@pytest.mark.case("P6")
def test_lines_come_live_with_time_level_step_and_duration(page: Page, served: Served) -> None:
    """Each line has its time, a dot of its level, its message and a badge; later lines come by themselves."""
    talk = Talk(served, "live")
    talk.say("cloning", step="clone")
    open_panel(page, talk.id)
    talk.say("slow answer", level="warning", duration_ms=5200)
    talk.say("broken", level="error")
    talk.say("mended", level="success")
    assert until_messages(page, 4) == ["clone cloning", "slow answer", "broken", "mended"]
    levels = page.evaluate("() => [...document.querySelectorAll('.lv-line')].map(line => line.dataset.level)")
    assert levels == ["info", "warning", "error", "success"]
    colours = page.evaluate(
        "() => [...document.querySelectorAll('.lv-dot')].map(dot => getComputedStyle(dot, '::before').color)"
    )
    assert len(set(colours)) == 4
    assert page.evaluate("() => /^\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('.lv-time').textContent)")
    assert page.locator("#L2 .lv-ms").text_content() == "5.2 s"
    talk.end()
    until_panel(page, "outcome", "completed")


@pytest.mark.case("P6")
def test_a_completed_run_is_green_with_its_duration(page: Page, served: Served) -> None:
    """The head says how long it took, in green, and offers neither cancel nor retry."""
    talk = Talk(served, "completed")
    open_panel(page, talk.id, actions="cancel+retry")
    seen(page, "() => !document.querySelector('.lv-cancel').hidden")
    page.evaluate("() => addEventListener('log-end', event => { window.ended = event.detail.state })")
    talk.end()
    until_panel(page, "outcome", "completed")
    seen(page, "() => window.ended === 'completed'")
    red, green = _red_and_green(page)
    assert green > red
    assert page.locator(".lv-timer").text_content()[:3] == "in "  # type: ignore[index]
    assert page.locator(".lv-cancel").is_hidden() and page.locator(".lv-retry").is_hidden()


@pytest.mark.case("P6")
def test_a_failed_run_is_red_with_its_error_and_can_be_retried(page: Page, served: Served) -> None:
    """The error stands above the lines; Retry begins another attempt, and the panel follows it by itself."""
    talk = Talk(served, "failed")
    talk.abort("row 2,910: 'sku' is missing")
    open_panel(page, talk.id, actions="cancel+retry")
    until_panel(page, "outcome", "failed")
    red, green = _red_and_green(page)
    assert red > green
    assert "row 2,910: 'sku' is missing" in str(page.locator(".lv-error").text_content())
    page.click(".lv-retry")
    seen(page, "() => document.querySelector('.lv-timer').textContent !== '' && document.querySelector('.lv-retry').hidden")
    talk.begin()
    talk.say("once more")
    seen(page, "() => document.querySelector('.lv-msg')?.textContent === 'once more'")
    talk.end()
    until_panel(page, "outcome", "completed")
    names = page.evaluate("() => [...document.querySelector('.lv-run select').options].map(option => option.text)")
    assert names == ["Attempt 2 (completed)", "Attempt 1 (failed)"]


@pytest.mark.case("P6")
def test_cancel_is_there_only_while_the_job_is_active(page: Page, served: Served) -> None:
    """It asks first, and is gone once the job has ended."""
    talk = Talk(served, "cancelled")
    talk.say("working")
    open_panel(page, talk.id, actions="cancel")
    page.click(".lv-cancel")
    page.click(".lv-dialog button[value=yes]")
    until_panel(page, "outcome", "cancelled")
    assert page.locator(".lv-cancel").is_hidden()


@pytest.mark.case("P6")
def test_cancel_is_busy_while_the_job_is_cancelling(page: Page, served: Served) -> None:
    """The worker has not confirmed yet: the button says so, and cannot be pressed again."""
    talk = Talk(served, "cancelling")
    until_sync(lambda: served.run(served.hf.get(talk.id)).state == "running", 60)

    def asked(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "status": "cancelling"})

    page.route(f"**/api/jobs/{talk.id}", asked)
    open_panel(page, talk.id, actions="cancel")
    cancel = page.locator(".lv-cancel")
    assert cancel.text_content() == "Cancelling…" and cancel.is_disabled() and cancel.get_attribute("aria-busy") == "true"
    assert page.locator(".lv-state").text_content() == "Cancelling"
    page.unroute_all(behavior="wait")
    talk.end()


@pytest.mark.case("P6")
def test_an_earlier_attempt_is_chosen_from_a_menu_newest_first(page: Page, served: Served) -> None:
    """The menu says how each attempt ended; choosing one shows its lines, and the address keeps it."""
    talk = Talk(served, "attempts")
    talk.say("first attempt")
    talk.retry("not yet")
    open_panel(page, talk.id)
    talk.say("second attempt")
    seen(page, "() => document.querySelector('.lv-msg')?.textContent === 'second attempt'")
    seen(page, "() => document.querySelector('.lv-run select').options[0].text === 'Attempt 2 (in progress)'")
    names = page.evaluate("() => [...document.querySelector('.lv-run select').options].map(option => option.text)")
    assert names == ["Attempt 2 (in progress)", "Attempt 1 (failed)"]
    page.select_option(".lv-run select", "1")
    seen(page, "() => document.querySelector('.lv-msg')?.textContent === 'first attempt'")
    assert "run=1" in page.url and page.get_attribute("log-view", "data-mode") == "past"
    talk.end()


def test_a_page_that_is_older_than_the_newest_attempt_shows_the_newest(page: Page, served: Served) -> None:
    """The page was made while attempt 1 was running; by the time its script runs there is attempt 2."""
    talk = Talk(served, "overtaken")
    talk.say("first attempt")
    talk.retry("not yet")
    talk.say("second attempt")
    until_sync(lambda: served.run(served.hf.get(talk.id)).run_no == 2, 60)
    open_panel(page, talk.id, run=1)
    seen(page, "() => document.querySelector('.lv-msg')?.textContent === 'second attempt'")
    talk.end()


@pytest.mark.case("P6")
def test_a_click_opens_what_else_a_line_knows(page: Page, served: Served) -> None:
    """Metadata stands below its line, as text, and goes with the next click."""
    talk = Talk(served, "metadata")
    talk.say("reading", row=1204, columns=["price", "sku"])
    talk.end()
    open_panel(page, talk.id)
    page.click("#L1 .lv-msg")
    told = page.locator(".lv-meta").text_content()
    assert "1204" in str(told) and '"sku"' in str(told)
    page.click("#L1 .lv-msg")
    assert page.locator(".lv-meta").count() == 0


def test_a_waiting_job_is_followed_once_it_begins(page: Page, served: Served) -> None:
    """Whoever opens the page of a queued job sees its first line without doing anything."""
    talk = Talk(served, "waiting", begin=False)
    open_panel(page, talk.id)
    assert "Waiting for a worker" in str(page.locator(".lv-empty").text_content())
    until_panel(page, "mode", "live")
    talk.begin()
    talk.say("begun")
    assert until_messages(page, 1) == ["begun"]
    until_panel(page, "outcome", "running")
    talk.end()


@pytest.mark.case("recovery-ui-3")
def test_a_run_beyond_its_expected_time_says_so(page: Page, served: Served) -> None:
    """After five minutes without an end, where the task says nothing else: Taking longer than expected."""
    talk = Talk(served, "slow")
    open_panel(page, talk.id)
    assert page.locator(".lv-slow").is_hidden()

    def began_before(route: Route) -> None:
        answer = route.fetch()
        job = answer.json()
        for run in job["runs"]:
            run["started_at"] = (datetime.fromisoformat(run["started_at"]) - timedelta(seconds=310)).isoformat()
        route.fulfill(response=answer, json=job)

    page.route(f"**/api/jobs/{talk.id}", began_before)
    open_panel(page, talk.id)
    seen(page, "() => !document.querySelector('.lv-slow').hidden")
    assert page.locator(".lv-slow").text_content() == "Taking longer than expected"
    page.unroute_all(behavior="wait")
    talk.end()


def test_the_end_is_followed_until_somebody_scrolls_up(page: Page, served: Served) -> None:
    """Scrolled up, the page stays where it is and counts what is new; the button leads back to the end."""
    talk = Talk(served, "scrolling")
    talk.say(*(f"line {n}" for n in range(300)))
    open_panel(page, talk.id)
    until_messages(page, 300)
    seen(page, AT_END)
    page.hover(".lv-scroll")
    page.mouse.wheel(0, -2000)
    seen(page, "() => !document.querySelector('log-view').hasAttribute('data-following')")
    seen(page, STANDS_STILL)  # a wheel turns on for some frames
    before = page.evaluate("() => document.querySelector('.lv-scroll').scrollTop")
    talk.say("new 1", "new 2", "new 3")
    seen(page, "() => document.querySelector('.lv-new').textContent === '3 new lines'")
    assert page.evaluate("() => document.querySelector('.lv-scroll').scrollTop") == before
    page.click(".lv-new")
    seen(page, AT_END)
    talk.say("new 4")
    until_messages(page, 304)
    seen(page, AT_END)
    talk.end()


def test_the_end_stays_in_view_when_the_window_changes(page: Page, served: Served) -> None:
    """A phone that is turned, a window that is made smaller, a line that wraps: who follows the end goes on seeing it."""
    talk = Talk(served, "turned")
    talk.say(*(f"line {n} " + "that is long enough to wrap on a phone " * 3 for n in range(150)))
    open_panel(page, talk.id)
    until_messages(page, 150)
    for width, height in ((390, 800), (800, 390), (1280, 900)):
        page.set_viewport_size({"width": width, "height": height})
        seen(page, f"() => innerWidth === {width}")
        seen(page, AT_END)
        assert page.get_attribute("log-view", "data-following") == ""
    talk.end()


def test_search_and_levels_ask_the_server_and_hold_for_live_lines(page: Page, served: Served) -> None:
    """What is found comes from the whole log; new lines are shown only if they match; the way back is offered."""
    talk = Talk(served, "search")
    talk.say(*(f"needle {n}" if n % 50 == 0 else f"hay {n}" for n in range(1, 1201)))
    talk.say("a NEEDLE that hurts", level="error")
    open_panel(page, talk.id)
    until_panel(page, "lines", "1000")
    page.fill(".lv-tools input", "needle")
    until_panel(page, "lines", "25")
    assert messages(page)[0] == "needle 50"
    talk.say("more hay", "another needle")
    until_panel(page, "lines", "26")
    assert "26 of 1,203 lines match" in str(page.locator(".lv-count").text_content())
    page.click(".lv-levels [data-level=error]")
    until_panel(page, "lines", "1")
    assert "search=needle" in str(page.get_attribute(".lv-ndjson", "href"))
    page.click(".lv-clear")
    until_panel(page, "lines", "1000")
    talk.end()


def test_a_link_leads_to_its_line_wherever_it_is(page: Page, served: Served) -> None:
    """#L137 is loaded, marked and in view, though the page begins with the last thousand."""
    talk = Talk(served, "link")
    talk.say(*(f"line {n}" for n in range(1, 2501)))
    talk.end()
    served.run(served.hf.wait_for_result(talk.id, timeout=60))
    open_panel(page, talk.id, hash="#L137")
    in_view = """() => { const line = document.querySelector('#L137.lv-target')?.getBoundingClientRect();
        const frame = document.querySelector('.lv-scroll').getBoundingClientRect();
        return line && line.top >= frame.top && line.bottom <= frame.bottom }"""
    seen(page, in_view)
    assert page.locator("#L137 .lv-msg").text_content() == "line 137"
    page.evaluate("() => { location.hash = '#L2400' }")
    seen(page, in_view.replace("L137", "L2400"))


@pytest.mark.case("D38")
def test_hostile_lines_are_only_ever_text(page: Page, served: Served) -> None:
    """Markup, scripts, control characters and directions of writing are shown, and do nothing."""
    hostile = [
        "<script>document.title='gone'</script><img src=x onerror=\"document.title='gone'\">",
        "</pre></div><style>*{display:none}</style>",
        "a\x00b\x07c\x1b]0;title\x07d\x1b[2Je",
        "\u202eright to left",
        "x" * 16_000,
        "😀 \ud7ff '; DROP TABLE holdfast_jobs; --",
    ]
    talk = Talk(served, "hostile")
    for text in hostile:
        talk.say(text, step="<b>step</b>", **{"<i>key</i>": "<u>value</u>"})
    talk.abort("<h1>error</h1>")
    open_panel(page, talk.id)
    shown = until_messages(page, 6)
    until_panel(page, "outcome", "failed")
    assert hostile[0] in shown[0] and hostile[1] in shown[1]
    assert shown[2].endswith("cde") and "\x1b" not in shown[2] and "\x07" not in shown[2]
    page.click("#L1 .lv-msg")
    assert page.title() == "A log"
    assert page.evaluate("() => document.querySelectorAll('log-view :is(script, style, img, b, i, u, h1)').length") == 0
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def test_colours_of_programs_become_classes(page: Page, served: Served) -> None:
    """ANSI colours are shown by classes, never by styles of their own."""
    talk = Talk(served, "ansi")
    talk.say("\x1b[1;32mPASS\x1b[0m then \x1b[31mFAIL\x1b[39m and \x1b[38;5;4mblue\x1b[0m \x1b[38;2;1;2;3mtrue\x1b[m end")
    talk.end()
    open_panel(page, talk.id)
    assert until_messages(page, 1) == ["PASS then FAIL and blue true end"]
    spans = page.evaluate(
        "() => [...document.querySelectorAll('.lv-msg span')].map(span => [span.className, span.textContent])"
    )
    assert spans == [["a-bold a-f2", "PASS"], ["a-f1", "FAIL"], ["a-f4", "blue"]]


def test_everything_can_be_reached_by_keyboard(page: Page, served: Served) -> None:
    """Tab reaches every control and the lines; arrows move, Enter opens, E goes to the next error, End follows."""
    talk = Talk(served, "keyboard")
    talk.say("one", "two", "three", key="value")
    talk.say("bad", level="error")
    open_panel(page, talk.id, actions="cancel")
    until_messages(page, 4)
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.className || document.activeElement.localName"))
        if reached[-1] == "lv-scroll":
            break
    assert {"select", "input", "button", "lv-text", "lv-ndjson", "lv-act lv-cancel", "lv-scroll"} == set(reached)
    current = "() => document.activeElement.id"
    page.keyboard.press("ArrowDown")
    assert page.evaluate(current) == "L1"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert "value" in str(page.locator("#L2 + .lv-meta").text_content())
    page.keyboard.press("Escape")
    assert page.locator(".lv-meta").count() == 0
    page.keyboard.press("e")
    seen(page, "() => document.activeElement.id === 'L4'")
    page.keyboard.press("End")
    seen(page, "() => document.querySelector('log-view').hasAttribute('data-following')")
    talk.end()


def test_without_scripts_the_page_shows_what_the_server_wrote(browser: Browser, served: Served) -> None:
    """What stands inside the element is readable where no script runs."""
    talk = Talk(served, "no-script")
    talk.end()
    with browser.new_context(base_url=served.base, java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(f"/test/panel/{talk.id}")
        assert page.locator("log-view pre").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_wrong(page: Page, served: Served, theme: str, width: int) -> None:
    """In both themes, wide and on a phone, with details open and an error shown; nothing is wider than the page."""
    talk = Talk(served, f"axe-{theme}-{width}")
    talk.say("\x1b[32mgreen\x1b[0m \x1b[34mblue\x1b[0m", step="build", duration_ms=12, key="value")
    talk.say("warned", level="warning")
    talk.say("broken " * 40, level="error")
    talk.abort("why it failed")
    open_panel(page, talk.id, actions="cancel+retry")
    until_panel(page, "outcome", "failed")
    page.click("#L1 .lv-msg")
    assert axe(page) == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
