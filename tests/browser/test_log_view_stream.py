"""The log panel when things go wrong: a stream that breaks, goes silent or is taken away, many tabs, long logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import log_in
from tests.support.browsing import Complaints, seen
from tests.support.panels import Talk, messages, open_panel, until_messages, until_panel
from tests.support.proxy import Proxy
from tests.support.waiting import until_sync

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page, Route

    from tests.support.served import Served

TABS = 8
MANY = 10_000
CUT_OFF = "Failed to load resource: net::ERR"


@pytest.fixture
def proxy(served: Served, complaints: Complaints) -> Iterator[Proxy]:
    standing = Proxy(served)
    complaints.also_at(standing.base)
    complaints.allow(CUT_OFF)
    yield standing
    standing.close()


def _numbers(page: Page) -> list[int]:
    found: list[int] = page.evaluate("() => [...document.querySelectorAll('.lv-no')].map(one => Number(one.textContent))")
    return found


@pytest.mark.case("P7")
def test_no_line_is_lost_or_doubled_over_a_cut(page: Page, served: Served, proxy: Proxy) -> None:
    """While the server cannot be reached a note says so; once it is back, all lines are there, each once."""
    talk = Talk(served, "cut")
    talk.say("1", "2", "3")
    open_panel(page, talk.id, base=proxy.base, data_poll=1)
    until_messages(page, 3)
    until_panel(page, "mode", "live")
    for round in (1, 2):
        proxy.cut()
        talk.say("a", "b", "c")
        until_panel(page, "mode", "polling")
        assert "interrupted" in str(page.locator(".lv-note").text_content())
        proxy.restore()
        until_panel(page, "mode", "live")
        assert page.locator(".lv-note").is_hidden()
        talk.say("after")
        until_messages(page, 3 + 4 * round)
    assert _numbers(page) == list(range(1, 12))
    talk.end()
    until_panel(page, "outcome", "completed")


@pytest.mark.case("P7", "recovery-ui-4")
def test_a_silent_stream_is_noticed_and_the_log_is_polled(page: Page, served: Served, proxy: Proxy) -> None:
    """A connection that stays open and says nothing is given up; lines and the end come by polling, each once."""
    talk = Talk(served, "silent")
    talk.say("before")
    open_panel(page, talk.id, base=proxy.base, data_poll=1, data_silent=1)
    until_panel(page, "mode", "live")
    proxy.silence_streams()
    talk.say("1", "2", "3")
    assert until_messages(page, 4) == ["before", "1", "2", "3"]
    until_panel(page, "mode", "polling")
    assert "read every 1 s" in str(page.locator(".lv-note").text_content())
    talk.say("4")
    talk.end()
    until_panel(page, "outcome", "completed")
    assert _numbers(page) == [1, 2, 3, 4, 5]


@pytest.mark.case("P8")
def test_the_panel_ends_when_access_is_withdrawn(context: BrowserContext, complaints: Complaints, served: Served) -> None:
    """Whoever is removed while watching sees why the log stands still, and none of the lines that come after."""
    made = served.run(served.hf.keys.create(tenant="acme", role="viewer"))
    log_in(context, made.secret)
    page = context.new_page()
    talk = Talk(served, "withdrawn")
    talk.say("seen")
    open_panel(page, talk.id)
    until_messages(page, 1)
    until_panel(page, "mode", "live")
    page.evaluate("() => addEventListener('log-end', event => { window.ended = event.detail.reason })")
    complaints.allow("status of 401")
    served.run(served.hf.keys.revoke(made.key.id))
    until_panel(page, "mode", "gone")
    talk.say("secret")
    seen(page, "() => window.ended === 'access_ended'")
    talk.end()
    served.run(served.hf.wait_for_result(talk.id, timeout=60))
    assert "no longer watch" in str(page.locator(".lv-note").text_content())
    assert messages(page) == ["seen"]


def test_eight_tabs_of_one_job_share_a_stream(page: Page, served: Served) -> None:
    """A browser allows six connections to a server: all tabs load, all see new lines, and one stream is open."""
    talk = Talk(served, "tabs")
    talk.say("before")
    tabs = [page, *(page.context.new_page() for _ in range(TABS - 1))]
    for tab in tabs:
        open_panel(tab, talk.id)
    talk.say("for all")
    for tab in tabs:
        assert until_messages(tab, 2) == ["before", "for all"]
    until_sync(lambda: served.streams() == 1, 60)  # those of earlier tests may still be closing
    for tab in tabs:
        tab.close()
    until_sync(lambda: served.streams() == 0, 60)
    talk.end()


def test_a_tab_that_comes_late_gets_what_the_others_have(page: Page, served: Served) -> None:
    """The shared stream is ahead of what a new tab has read: the lines between are read, and all stand there once."""
    talk = Talk(served, "late")
    talk.say("1", "2", "3", "4")
    open_panel(page, talk.id)
    until_messages(page, 4)
    late = page.context.new_page()

    def stale(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={"items": answer.json()["items"][:1], "next_after": None})

    late.route("**/logs?**newest**", stale, times=1)
    open_panel(late, talk.id)
    talk.say("5")
    assert until_messages(late, 5) == ["1", "2", "3", "4", "5"]
    talk.end()


def test_eight_tabs_of_different_jobs_all_load(page: Page, served: Served) -> None:
    """Not every one has a stream of its own then, and still every one gets its lines."""
    talks = [Talk(served, f"different-{n}") for n in range(TABS)]
    tabs = [page, *(page.context.new_page() for _ in range(TABS - 1))]
    for tab, talk in zip(tabs, talks, strict=True):
        open_panel(tab, talk.id)
    for talk in talks:
        talk.say(f"in {talk.name}")
    for tab, talk in zip(tabs, talks, strict=True):
        assert until_messages(tab, 1) == [f"in {talk.name}"]
    until_sync(lambda: 0 < served.streams() <= 3, 60)
    for talk in talks:
        talk.end()


def test_without_shared_workers_the_page_follows_by_itself(page: Page, served: Served) -> None:
    """An old browser, or a private window: the same lines over the page's own stream."""
    page.add_init_script("delete window.SharedWorker")
    talk = Talk(served, "alone")
    talk.say("before")
    open_panel(page, talk.id)
    talk.say("live")
    assert until_messages(page, 2) == ["before", "live"]
    talk.end()
    until_panel(page, "outcome", "completed")


def test_where_streams_are_refused_a_note_says_that_the_log_is_read_every_half_minute(
    page: Page, served: Served, complaints: Complaints
) -> None:
    """As by a proxy that lets none through: what is there is shown, and how old it may be is said."""
    page.add_init_script("delete window.SharedWorker")  # its requests are out of the test's reach
    complaints.allow("status of 503")
    page.route("**/logs/stream**", lambda route: route.fulfill(status=503, json={"code": "unavailable"}))
    talk = Talk(served, "refused")
    talk.say("before")
    until_sync(lambda: served.run(served.hf.get(talk.id)).state == "running", 60)
    open_panel(page, talk.id)
    until_panel(page, "mode", "polling")
    note = page.locator(".lv-note")
    assert note.is_visible() and "the log is read every 30 s" in str(note.text_content())
    talk.end()


def test_ten_thousand_lines(page: Page, served: Served) -> None:
    """The newest are there first, the rest is reached by scrolling, in order; and it costs less than plain rows would."""
    job = served.run(_enqueue_many(served))
    served.run(served.hf.run_worker(queues=["many"], exit_when_idle=0.0))
    open_panel(page, job)
    until_panel(page, "lines", "1000")
    assert page.locator(".lv-count").text_content() == "10,000 lines"
    page.click(".lv-scroll")
    for loaded in range(2000, MANY + 1, 1000):
        page.evaluate("() => { document.querySelector('.lv-scroll').scrollTop = 0 }")
        seen(page, "count => Number(document.querySelector('log-view').dataset.lines) >= count", loaded)
    assert _numbers(page) == list(range(1, MANY + 1))
    page.evaluate("() => { location.hash = '#L5000' }")
    seen(page, "() => document.querySelector('#L5000.lv-target') !== null")
    measured = page.evaluate(MEASURE, MANY)
    print("\n" + TOLD.format(**measured))
    assert measured["paint"] < measured["plainPaint"] and measured["append"] < measured["plainAppend"], TOLD.format(**measured)


async def _enqueue_many(served: Served) -> str:
    job = await served.hf.tasks["many"].options(tenant="acme", queue="many").enqueue(MANY)
    return job.id


MEASURE = """async count => {
    const { LogWindow } = await import('/test/static/log-window.js');
    const { lineElement } = await import('/test/static/log-lines.js');
    const line = no => ({ no, level: 'info', message: `line ${no} of a long log`, created_at: '2026-01-01T00:00:00Z' });
    const lines = (from, to) => Array.from({ length: to - from }, (_, i) => line(from + i));
    const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
    const measured = { chunks: [Infinity, Infinity], 'plain rows': [Infinity, Infinity] };
    let place = document.querySelector('log-view');
    for (const kind of ['chunks', 'plain rows', 'chunks', 'plain rows']) {
        const box = document.createElement('div');
        box.className = 'lv-scroll';
        const list = document.createElement('div');
        box.append(list);
        place.replaceWith(box);
        place = box;
        const window = new LogWindow(list);
        const add = new_lines => kind === 'chunks' ? window.append(new_lines) : list.append(...new_lines.map(lineElement));
        const timed = async work => { const from = performance.now(); work(); await frame(); return performance.now() - from };
        const took = [await timed(() => add(lines(1, count + 1))), await timed(() => add(lines(count + 1, count + 51)))];
        measured[kind] = took.map((each, i) => Math.min(each, measured[kind][i]));
    }
    const [[paint, append], [plainPaint, plainAppend]] = [measured['chunks'], measured['plain rows']];
    return { count, paint, append, plainPaint, plainAppend, ratio: paint / plainPaint, appendRatio: append / plainAppend };
}"""
"""The better of two rounds, by turns: what else the machine does falls on both."""
TOLD = (
    "{count} lines: first paint {paint:.0f} ms, plain rows {plainPaint:.0f} ms (ratio {ratio:.2f}); "
    "50 more {append:.1f} ms, plain rows {plainAppend:.1f} ms (ratio {appendRatio:.2f})"
)
