"""The dashboard in a real browser: the main story by keyboard, both themes and widths, lists that hold still, no scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast import Abort, current
from tests.support.browsing import Complaints, axe, seen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Route

    from tests.support.served import Served

READ_AGAIN_UNTIL = """([name, number]) => {
    htmx.trigger('#live', 'refresh');
    const row = [...document.querySelectorAll('[data-row]')].find(row => row.querySelector('a').textContent === name);
    return [...row.querySelectorAll('td.num')].some(cell => cell.textContent === number) }"""
STATE = "() => document.querySelector('#live')?.dataset.state"


@pytest.fixture(scope="module")
def mended(served: Served) -> dict[str, bool]:
    """A task that fails until somebody mends what it needs."""
    broken = {"mended": False}

    @served.hf.task(name="import_prices", queue="imports", max_attempts=1)
    async def import_prices(file: str) -> int:
        current().log.info(f"reading {file}", step="read")
        if not broken["mended"]:
            current().log.error("column sku is missing", step="read")
            raise Abort("column sku is missing", code="bad_file")
        current().log.success("read 1,204 rows", step="read")
        return 1204

    return broken


def enqueue(served: Served, file: str, **options: object) -> str:
    task = served.hf.tasks["import_prices"].options(tenant="acme", **options)
    job_id: str = served.run(task.enqueue(file)).id
    return job_id


@pytest.mark.case("P6", "recovery-ui-2")
def test_find_the_failing_job_read_its_log_retry_it_and_see_it_turn_green(
    page: Page, served: Served, mended: dict[str, bool]
) -> None:
    """By keyboard alone, from the overview to the green end; the page follows by itself."""
    mended["mended"] = False
    job_id = enqueue(served, "april.csv", tags=["story"])
    served.work()
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("tag:story")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?tag=story")
    page.keyboard.press("j")
    page.keyboard.press("o")
    page.wait_for_url(f"**/jobs/{job_id}")
    assert seen(page, STATE) == "failed"
    page.locator("log-view[data-ready]").wait_for()
    assert "column sku is missing" in page.locator("log-view").inner_text()
    mended["mended"] = True
    page.keyboard.press("r")
    page.locator("#ask[open] button.primary").wait_for()
    assert "Retry 1 job?" in page.locator("#ask").inner_text()
    page.keyboard.press("Enter")
    page.locator(".said").wait_for()
    assert "Queued again." in page.locator(".said").inner_text()
    served.work()
    seen(page, "() => document.querySelector('#live').dataset.state === 'completed'")
    seen(page, "() => document.querySelector('log-view').innerText.includes('read 1,204 rows')")
    page.locator("#result pre").wait_for()
    assert page.locator("#result pre").inner_text() == "1204"


def test_a_list_holds_still_while_rows_are_ticked(page: Page, served: Served, mended: dict[str, bool]) -> None:
    """And says so; what has come meanwhile appears when nothing is ticked any more. The question names what is ticked."""
    first = enqueue(served, "one.csv", tags=["still"], delay=3600)
    page.goto("/jobs?tag=still")
    page.locator(f"#job-{first} [name=id]").check()
    assert "held" in page.locator("#pill").inner_text()
    second = enqueue(served, "two.csv", tags=["still"], delay=3600)
    page.evaluate("() => htmx.trigger('#live', 'refresh')")
    assert page.locator(f"#job-{second}").count() == 0
    page.locator("#bulk [name=verb]").select_option("cancel")
    page.locator("#bulk button").click()
    page.locator("#ask[open] [data-close]").wait_for()
    assert "Cancel 1 job?" in page.locator("#ask").inner_text()
    page.locator("#ask [data-close]").click()
    page.locator(f"#job-{first} [name=id]").uncheck()
    page.evaluate("() => htmx.trigger('#live', 'refresh')")
    page.locator(f"#job-{second}").wait_for()


def test_the_panels_own_buttons_ask_as_the_page_does(page: Page, served: Served, mended: dict[str, bool]) -> None:
    """Retry beside the log opens the same question, which axe finds nothing wrong with, and does nothing by itself."""
    mended["mended"] = False
    job_id = enqueue(served, "august.csv")
    served.work()
    page.goto(f"/jobs/{job_id}")
    page.locator("log-view[data-ready]").wait_for()
    page.locator(".lv-retry").click()
    page.locator("#ask[open] button.primary").wait_for()
    assert "Retry 1 job?" in page.locator("#ask").inner_text()
    assert axe(page, "#ask") == []
    page.keyboard.press("Escape")
    assert seen(page, STATE) == "failed"
    assert served.run(served.hf.get(job_id)).state == "failed"


def test_a_page_that_is_behind_its_panel_reads_itself_again_at_once(
    page: Page, served: Served, mended: dict[str, bool]
) -> None:
    """The job ends between the page and its panel: the panel, which knows, tells the page."""
    mended["mended"] = True
    job_id = enqueue(served, "september.csv")

    def ends_meanwhile(route: Route) -> None:
        served.work()
        route.continue_()

    page.route(f"**/api/jobs/{job_id}", ends_meanwhile, times=1)
    page.add_init_script("addEventListener('log-state', event => { window.told = event.detail.state })")
    page.goto(f"/jobs/{job_id}")
    assert seen(page, "() => window.told") == "completed"
    seen(page, f"() => ({STATE})() === 'completed'")


@pytest.mark.parametrize("width", [390])
def test_on_a_phone_the_list_comes_before_the_filters(page: Page, served: Served, mended: dict[str, bool], width: int) -> None:
    """They are folded behind a button that says how many are on, and unfold below it."""
    job_id = enqueue(served, "fold.csv", tags=["fold"], delay=3600)
    page.goto("/jobs?tag=fold")
    tag = page.get_by_label("Tag", exact=True)
    assert tag.is_hidden()
    box = page.locator(f"#job-{job_id}").bounding_box()
    assert box is not None and box["y"] < 450
    page.get_by_role("button", name="Filter 1 on").click()
    assert tag.is_visible() and tag.input_value() == "fold"


def test_the_keyboard_stays_where_it_is_while_the_page_reads_itself_again(page: Page, served: Served) -> None:
    """Also in lists whose rows have no name: the next j goes on from there."""
    task = served.hf.tasks["talk"]
    for queue in ("keys-1", "keys-2", "keys-3"):
        served.run(task.options(tenant="acme", queue=queue, delay=3600).enqueue("keys"))
    page.goto("/queues")
    at = "() => document.activeElement.closest('[data-row]')?.querySelector('a').textContent"
    page.locator("[data-row]", has_text="keys-1").focus()
    page.keyboard.press("j")
    assert page.evaluate(at) == "keys-2"
    served.run(task.options(tenant="acme", queue="keys-3", delay=3600).enqueue("keys"))
    seen(page, READ_AGAIN_UNTIL, ["keys-3", "2"])
    assert page.evaluate(at) == "keys-2"
    page.keyboard.press("j")
    assert page.evaluate(at) == "keys-3"


def test_the_theme_is_chosen_and_kept(page: Page) -> None:
    """System, light, dark: also after a reload, without the other one being painted first."""
    page.goto("/")
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    page.goto("/jobs")
    assert page.evaluate("() => getComputedStyle(document.body).backgroundColor") == "rgb(14, 17, 20)"
    assert page.locator("#theme").inner_text() == "Theme: dark"


def test_a_one_time_link_logs_in_and_leaves_the_address(
    context: BrowserContext, complaints: Complaints, served: Served
) -> None:
    """What stood behind the # is gone from the address and from the history."""
    link = served.run(served.app.state.web.authenticator.one_time_link(served.base))
    page = context.new_page()
    page.goto(link)
    seen(page, "() => document.querySelector('main h1')?.textContent === 'Overview'")
    assert page.url == f"{served.base}/"


@pytest.fixture
def plain(browser: Browser, served: Served) -> Iterator[Page]:
    """A tab in which no script runs."""
    context = browser.new_context(base_url=served.base, java_script_enabled=False)
    yield context.new_page()
    context.close()


def test_everything_works_without_javascript(plain: Page, served: Served, mended: dict[str, bool], admin_key: str) -> None:
    """Log in, find the job, read the log, answer the question, see that it was done."""
    mended["mended"] = False
    job_id = enqueue(served, "july.csv", tags=["plain"])
    served.work()
    plain.goto("/dead?tag=plain")
    plain.fill("#key", admin_key)
    plain.click("#login button")
    plain.wait_for_url("**/dead?tag=plain")
    plain.click(f"#job-{job_id} a")
    assert "column sku is missing" in plain.locator(".log-plain").inner_text()
    plain.click(".actions button")
    assert "Retry 1 job?" in plain.locator("#question").inner_text()
    plain.click("#question button")
    plain.wait_for_url(f"**/jobs/{job_id}?done=retried")
    assert "queued" in plain.locator(".banner").inner_text()
