"""Every page of the dashboard in a real browser, full of names that somebody means harm with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Abort, current
from holdfast.web.dashboard.views import GROUPS
from tests.browser.conftest import log_in
from tests.support.walking import addresses, walk

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

    from tests.support.browsing import Complaints
    from tests.support.served import Served

HOSTILE = "<img/src=x/onerror=alert(1)>{{7*7}}\u202e'\"--" + "x" * 120
OF_ONE = ("/organization", "/budgets", "/members", "/keys", "/webhooks", "/projects")


async def _fill(served: Served) -> dict[str, list[str]]:
    """Something on every page; the addresses of what needs more than a path."""
    hf = served.hf

    @hf.task(name=HOSTILE, queue="hostile", max_attempts=1, needs="payments", budget="ai")
    async def nasty(value: str, works: bool = False) -> str:
        current().log.error(value, step=HOSTILE[:100], detail=value)
        await current().spend(3, "ai")
        if works:
            return value
        raise Abort(value, code="nasty")

    await hf.projects.create("acme", "web", name=HOSTILE)
    await hf.members.add("acme", HOSTILE, "viewer")
    await hf.keys.create(tenant="acme", role="viewer", name=HOSTILE)
    await hf.schedules.set("nightly", nasty, "0 3 * * *", tenant="acme", args={"value": HOSTILE})
    webhook = (await hf.webhooks.set("acme", "https://example.com/" + "a" * 90, events=["job.*"], description=HOSTILE)).webhook
    made: Any = nasty.options(tenant="acme", project="web", tags=[HOSTILE[:90], "nightly"], meta={"of": HOSTILE})
    jobs = [await made.enqueue(HOSTILE), await made.enqueue(HOSTILE, works=True)]
    await hf.run_worker(queues=["hostile"], exit_when_idle=0.0)
    jobs.append(await nasty.options(tenant="acme", delay=3600).enqueue(HOSTILE))
    await hf.tenants.set("paused", limit=2)
    await hf.tenants.pause("paused", by=HOSTILE)
    await hf.queues.pause("hostile", by=HOSTILE)
    return {
        "/jump": [],  # leads elsewhere
        "/jobs": ["/jobs", "/jobs?state=failed&last=1h", "/jobs?tag=nothing"],
        "/jobs/{job_id}": [f"/jobs/{job.id}" for job in jobs],
        "/webhooks/{webhook_id}": [f"/webhooks/{webhook.id}"],
        "/projects/show": ["/projects/show?tenant=acme&id=web"],
        "/members": ["/members?tenant=acme", "/members"],
        **{path: [f"{path}?tenant=acme"] for path in OF_ONE if path != "/members"},
    }


@pytest.mark.case("D38")
def test_every_page_is_accessible_fits_and_stands_still(
    context: BrowserContext, complaints: Complaints, served: Served
) -> None:
    """Light and dark, on a screen and on a phone: axe finds nothing, nothing is cut off or jumps, names are only text."""
    examples = served.run(_fill(served))
    log_in(context, served.key(role="service"))
    page = context.new_page()
    opened: list[str] = []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    wrong = walk(page, ["/login", *addresses(GROUPS, examples)])
    assert not wrong, "\n".join(wrong)
    assert opened == []
    served.run(served.hf.queues.resume("hostile"))
