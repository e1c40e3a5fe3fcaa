"""What the pages tell: states, waiting, charts, empty lists, pages of lists; and pages that an application adds."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError
from holdfast.pages import Nav, Page, Pages
from holdfast.store.protocol import Tally
from holdfast.web.dashboard import charts, words
from holdfast.web.dashboard.views import jobs
from tests.web.scene import Scene
from tests.web.test_dashboard_actions import said


@pytest.fixture
async def sqlite_hf(sqlite_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(sqlite_url)
    yield app
    await app.aclose()


async def test_a_waiting_job_says_why(scene: Scene) -> None:
    """On its own page, and on the page of its organization."""
    job_id = await scene.enqueue()
    assert "No worker serves queue default" in said(await scene.get("acme viewer", f"/jobs/{job_id}"))
    await scene.hf.tenants.pause("acme", by="ana")
    assert "Tenant acme is paused by ana" in said(await scene.get("acme viewer", f"/jobs/{job_id}"))
    page = said(await scene.get("acme viewer", "/organization"))
    assert "Why is acme waiting? Tenant acme is paused by ana" in page


@pytest.mark.case("recovery-ui-1", "recovery-ui-3")
async def test_a_running_job_is_slow_after_its_time_and_cancelling_until_it_stops(hf_at: Holdfast, clock: ManualClock) -> None:
    """The page says which number it has passed; who asked for the cancel, and that the button is busy."""
    scene = Scene(hf_at)

    @hf_at.task(expected=30)
    async def render() -> None: ...

    job = await render.options(tenant="acme").enqueue()
    await hf_at.store.job_claim(worker="w-1", machine="m-1", queues=["default"], tasks=["render"], limit=1)
    page = said(await scene.get("acme member", f"/jobs/{job.id}"))
    assert "running" in page and "Taking longer" not in page and "w-1" not in page
    clock.advance(60)
    page = said(await scene.get("acme admin", f"/jobs/{job.id}"))
    assert "Taking longer than expected (30 s)" in page and "w-1 on m-1" in page
    assert "1 job taking longer than expected" in said(await scene.get("acme viewer", "/"))
    await hf_at.cancel(job.id, by="ana")
    answer = await scene.get("acme member", f"/jobs/{job.id}")
    assert "asked by ana" in said(answer) and "<button disabled>Cancelling …</button>" in answer.text
    assert f'action="/jobs/{job.id}/cancel"' not in answer.text


async def test_the_overview_draws_the_last_hour(scene: Scene) -> None:
    """For the service from what workers counted, for an organization from its own newest jobs: on both databases."""
    for number in (1, 2, -1):
        await scene.enqueue(args={"a": number})
    await scene.enqueue("other member")
    await scene.work()
    everybody = (await scene.get("service", "/")).text
    assert re.search(r"<title>(this minute|1 min ago): 3 completed, 1 failed</title>", everybody)
    assert "jobs ended in the last hour" in everybody
    await scene.hf.enqueue("add", {"a": 1}, tenant="acme", delay=3600)
    own = (await scene.get("acme viewer", "/")).text
    tiles = re.findall(r'<span class="big num">([^<]+)</span><span class="state is-(\w+)">', own)
    assert dict((name, n) for n, name in tiles) == {
        "running": "0",
        "queued": "0",
        "scheduled": "1",
        "failed": "1",
        "completed": "2",
        "cancelled": "0",
    }
    assert re.search(r"<title>(this minute|1 min ago): 2 completed, 1 failed</title>", own)
    assert "other" not in said(await scene.get("acme viewer", "/"))


@pytest.mark.parametrize("who", ["service", "acme viewer"])
async def test_charts_go_back_a_day_or_a_week(hf_at: Holdfast, clock: ManualClock, who: str) -> None:
    """By a link that stays in the address; what is older than an hour is in the longer ones alone."""
    scene = Scene(hf_at)
    clock.advance(-60 * clock.now().minute)
    await scene.enqueue()
    await scene.work()
    clock.advance(3600 * 5)
    await hf_at.store.tally_add([Tally("completed", "default", "", 0)])
    pages = {last: await scene.get(who, f"/?last={last}") for last in ("1h", "24h", "7d")}
    assert ": 1 completed" not in pages["1h"].text
    assert "<title>5 h ago: 1 completed</title>" in pages["24h"].text
    assert re.search(r"<title>[36] h ago: 1 completed</title>", pages["7d"].text)
    assert "Jobs ended in the last 7 days 1" in said(pages["7d"])
    assert 'href="/?last=24h"' in pages["7d"].text and re.search(r'last=7d"[^>]*aria-current="true"', pages["7d"].text)
    assert (await scene.get(who, "/?last=2y")).status_code == 422


async def test_lists_come_in_pages_that_keep_the_filter(sqlite_hf: Holdfast) -> None:
    """Fifty to a page, each job on exactly one of them, the filter in every address."""
    scene = Scene(sqlite_hf)
    task = sqlite_hf.task_named("add")
    await sqlite_hf.enqueue_many([task.options(tenant="acme", tags=["x"]).job(no) for no in range(120)])
    await sqlite_hf.enqueue_many([task.options(tenant="acme").job(no) for no in range(5)])
    seen: list[str] = []
    address, pages = "/jobs?tag=x", 0
    while address:
        page = (await scene.get("acme viewer", address)).text
        seen += re.findall(r'<tr id="job-([^"]+)"', page)
        found = re.search(r'href="([^"]+)" rel="next"', page)
        address = found[1].replace("&amp;", "&") if found else ""
        pages += 1
        assert not address or "tag=x" in address
    assert (pages, len(seen), len(set(seen))) == (3, 120, 120)


async def test_a_search_for_something_rare_ends_by_itself(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it has looked, and goes on when asked: no page walks through all of history unasked."""
    monkeypatch.setattr(jobs, "LOOKED_AT", 5)
    monkeypatch.setattr(jobs, "LOOKED_AT_OF_ONE", 5)
    rare = await scene.enqueue(tags=["rare"])
    for _ in range(8):
        await scene.enqueue()
    await scene.work()
    for who in ("service", "acme viewer"):
        bounded = await scene.get(who, "/jobs?tag=rare")
        assert "None of the newest 5 jobs" in said(bounded)
        for word in ('rel="next">Look further back', ">look through all jobs"):
            link = re.search(rf'href="([^"]+)"[ ]?{word}', bounded.text)
            assert link is not None
            assert f'id="job-{rare}"' in (await scene.get(who, link[1].replace("&amp;", "&"))).text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/", "No jobs yet"),
        ("/jobs", "Enqueue one"),
        ("/jobs?task=nothing", "Clear the filter"),
        ("/dead", "Nothing has failed for good"),
        ("/queues", "No queues yet"),
        ("/workers", "No worker is there"),
        ("/tenants", "No organization was set yet"),
        ("/members?tenant=acme", "No members yet"),
        ("/projects?tenant=acme", "No projects yet"),
    ],
)
async def test_empty_pages_teach(sqlite_hf: Holdfast, path: str, words: str) -> None:
    """A page with nothing on it says what would be there, and how it gets there."""
    assert words in said(await Scene(sqlite_hf).get("service", path))


@pytest.mark.parametrize(
    ("typed", "place"),
    [
        ("01890000-0000-7000-8000-000000000000", "/jobs/01890000-0000-7000-8000-000000000000"),
        ("queue:mail", "/jobs?queue=mail"),
        ("add", "/jobs?task=add"),
        ("nightly", "/jobs?tag=nightly"),
        ("", "/jobs"),
    ],
)
async def test_the_jump_box_finds_its_way(sqlite_hf: Holdfast, typed: str, place: str) -> None:
    """An id, a name with its kind, a task that is known, else a tag."""
    answer = await Scene(sqlite_hf).get("acme viewer", "/jump", params={"q": typed})
    assert (answer.status_code, answer.headers["location"]) == (303, place)


async def test_an_application_adds_pages_in_the_same_frame(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its template, its entry in the navigation, its act: by the public module alone, and refused to those who may not."""
    package = tmp_path / "shop_pages"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "templates" / "orders.html").write_text(
        '{% extends "frame.html" %}{% block title %}Orders{% endblock %}'
        '{% block main %}<h1>Orders of {{ page.tenant }}</h1>{{ parts.state("completed") }}{{ note }}{% endblock %}'
    )
    monkeypatch.syspath_prepend(tmp_path)
    pages = Pages("shop", templates="shop_pages", nav=[Nav("Orders", "/orders", "manage_keys", "Shop")])

    @pages.get("/orders", "manage_keys")
    async def orders(page: Page) -> Any:
        return page.render("shop/orders.html", note="<i>three</i>")

    @pages.post("/orders/ship", "manage_keys")
    async def ship(page: Page) -> Any:
        question = await page.confirmed("Ship 3 orders?", "Ships them.", button="Ship", count=3)
        return question or page.redirect("/orders", "saved")

    hf = Holdfast(sqlite_url)
    hf.extend("shop", pages=[pages])
    scene = Scene(hf)
    page = (await scene.get("acme admin", "/orders")).text
    assert "Orders of acme" in page and "&lt;i&gt;three" in page and '<a href="/orders" aria-current="page">Orders</a>' in page
    assert "Ship 3 orders?" in (await scene.call("acme admin", "POST", "/orders/ship")).text
    shipped = await scene.call("acme admin", "POST", "/orders/ship", data={"confirm": "3"})
    assert shipped.headers["location"] == "/orders?done=saved"
    assert (await scene.get("acme member", "/orders")).status_code == 403
    assert "Orders" not in (await scene.get("acme member", "/jobs")).text
    await hf.aclose()


def test_pages_with_an_act_that_is_none_are_refused(tmp_path: Path) -> None:
    """At the start, by name, and not at the first request."""
    hf = Holdfast(f"sqlite:///{tmp_path}/x.db")
    pages = Pages("shop", nav=[Nav("Orders", "/orders", "read_oders")])
    hf.extend("shop", pages=[pages])
    with pytest.raises(ConfigError, match="read_oders"):
        hf.asgi()


def test_numbers_and_spans_are_short() -> None:
    """As people say them."""
    spans = [words.span(seconds) for seconds in (0.0123, 4.24, 42, 252, 720, 3720, 90_000, None)]
    assert spans == ["12 ms", "4.2 s", "42 s", "4m 12s", "12m", "1h 2m", "1d 1h", "–"]
    said = [words.capped(10_000), words.capped(1204), words.capped(500, 500), words.number(0.5)]
    assert said == ["10k+", "1,204", "500+", "0.5"]


def test_charts_stay_within_their_frame() -> None:
    """Whatever the numbers; nothing at all is a flat line."""
    steps: list[dict[str, float]] = [{"completed": 3.0, "failed": 1.0}, {}, {"failed": 2.0}]
    drawn = charts.stacks(steps, ("completed", "failed"), ("2 min ago", "", ""))
    bars = [bar for column in drawn["columns"] for bar in column.bars]
    assert len(bars) == 3
    assert all(bar.y >= 0 and bar.y + bar.height <= charts.HEIGHT + 0.1 and bar.x + bar.width <= charts.WIDTH for bar in bars)
    assert drawn["columns"][0].title == "2 min ago: 3 completed, 1 failed"
    assert charts.line([None, 3.0, None]).points.count(",") == 2, "one value is a short line"
    points = [float(y) for y in re.findall(r",([\d.]+)", charts.line([None, 5.0, 0.0, None, 2.5]).points)]
    assert len(points) == 3 and all(0 <= y <= charts.HEIGHT for y in points)
    assert charts.line([]).points == charts.line([0.0, 0.0]).points


async def test_what_is_remembered_of_one_organization_is_not_shown_to_another(scene: Scene) -> None:
    """Neither in the overview, nor beside the list, nor in the queues; the service role sees all of them together."""
    await scene.enqueue()
    for path, mine, none in (("/", "1 queued", "0 queued"), ("/jobs", "queued 1", "queued 0")):
        assert mine in said(await scene.get("acme viewer", path))
        assert none in said(await scene.get("zoe viewer", path)), path
        assert mine in said(await scene.get("service", path)), path
    assert "default" in said(await scene.get("acme viewer", "/queues"))
    assert "default" not in said(await scene.get("zoe viewer", "/queues"))
