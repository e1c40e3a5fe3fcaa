"""Webhooks of an organization: whom it wants to be told of what, and what became of each message."""

from __future__ import annotations

import re
from typing import Any

from holdfast.errors import InvalidOption
from holdfast.job import State
from holdfast.pages import Nav, Pages
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.views.organization import GROUP
from holdfast.web.dashboard.words import many
from holdfast.webhooks.endpoints import Webhook

PER_PAGE = 50
COUNTED_MAX = 200
"""How many failed messages a question counts."""
STATES = (State.QUEUED, State.COMPLETED, State.FAILED)

pages = Pages("webhooks", nav=[Nav("Webhooks", "/webhooks", "manage_webhooks", GROUP)])


@pages.get("/webhooks", "manage_webhooks")
async def list_webhooks(page: PageRequest) -> Any:
    found = await page.hf.webhooks.list(tenant=page.tenant, cursor=page.query.get("cursor"), limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    next_cursor = shown[-1].id if len(found) > PER_PAGE else None
    return page.render("webhooks.html", webhooks=shown, next_cursor=next_cursor, on=page.hf.settings.webhooks)


@pages.post("/webhooks/make", "manage_webhooks")
async def make(page: PageRequest) -> Any:
    """Answered at once and not by way of another address: the secret is shown now and never again."""
    tenant, form = page.tenant_named(), await page.form()
    given = {"events": _events(form.get("events")) or ["*"], "description": form.get("description") or None}
    made = await page.hf.webhooks.set(tenant, form.get("url"), by=page.actor, **given)
    return await _show(page, made.webhook, made.secret)


@pages.get("/webhooks/{webhook_id}", "manage_webhooks")
async def show(page: PageRequest) -> Any:
    return await _show(page, await _own(page))


async def _show(page: PageRequest, webhook: Webhook, secret: str | None = None) -> Any:
    state = page.query.get("state")
    found = await page.hf.webhooks.deliveries(
        webhook.id, tenant=page.tenant, state=state, cursor=page.query.get("cursor"), limit=PER_PAGE + 1
    )
    shown = found[:PER_PAGE]
    return page.render(
        "webhook.html",
        webhook=webhook,
        secret=secret,
        place=f"/webhooks/{webhook.id}",
        deliveries=shown,
        # Under the address of what was just done there are no further pages.
        next_cursor=shown[-1].id if len(found) > PER_PAGE and secret is None else None,
        state=state,
        states=[each.value for each in STATES],
        on=page.hf.settings.webhooks,
    )


async def _own(page: PageRequest) -> Webhook:
    found: Webhook = await page.hf.webhooks.get(page.place["webhook_id"], tenant=page.tenant)
    return found


def _events(typed: str) -> list[str]:
    return [one for one in re.split(r"[\s,]+", typed) if one]


# -- what is done to one -------------------------------------------------------------------------------------------------


@pages.post("/webhooks/{webhook_id}/change", "manage_webhooks")
async def change(page: PageRequest) -> Any:
    webhook, form = await _own(page), await page.form()
    url, events = form.get("url") or webhook.url, _events(form.get("events")) or webhook.events
    sentence = f"Sends {', '.join(events)} to {url}; until now {', '.join(webhook.events)} to {webhook.url}."
    question = await page.confirmed("Change 1 webhook?", sentence, button="Change the webhook")
    if question is not None:
        return question
    await page.hf.webhooks.set(webhook.tenant, url, id=webhook.id, events=events, by=page.actor)
    return page.redirect(f"/webhooks/{webhook.id}", "saved")


@pages.post("/webhooks/{webhook_id}/rotate", "manage_webhooks")
async def rotate(page: PageRequest) -> Any:
    webhook = await _own(page)
    sentence = f"A new secret for {webhook.url}. For a day messages are signed with both, so that the receiver can change over."
    question = await page.confirmed("Change the secret of 1 webhook?", sentence, button="Make a new secret", danger=True)
    if question is not None:
        return question
    made = await page.hf.webhooks.rotate(webhook.id, tenant=page.tenant, by=page.actor)
    return await _show(page, made.webhook, made.secret)


@pages.post("/webhooks/{webhook_id}/disable", "manage_webhooks")
async def disable(page: PageRequest) -> Any:
    webhook = await _own(page)
    sentence = f"Sends nothing more to {webhook.url}; what is on its way there fails, and can be sent again later."
    question = await page.confirmed("Disable 1 webhook?", sentence, button="Disable the webhook", danger=True)
    if question is not None:
        return question
    await page.hf.webhooks.disable(webhook.id, tenant=page.tenant, by=page.actor)
    return await page.redirect_back(f"/webhooks/{webhook.id}", "saved")


@pages.post("/webhooks/{webhook_id}/enable", "manage_webhooks")
async def enable(page: PageRequest) -> Any:
    webhook = await _own(page)
    sentence = f"Sends to {webhook.url} again. What failed meanwhile is sent again only if you ask for it."
    question = await page.confirmed("Enable 1 webhook?", sentence, button="Enable the webhook")
    if question is not None:
        return question
    await page.hf.webhooks.enable(webhook.id, tenant=page.tenant, by=page.actor)
    return await page.redirect_back(f"/webhooks/{webhook.id}", "saved")


@pages.post("/webhooks/{webhook_id}/remove", "manage_webhooks")
async def remove(page: PageRequest) -> Any:
    webhook = await _own(page)
    sentence = f"Removes {webhook.url} of {webhook.tenant} with its secret. What is on its way there is given up."
    question = await page.confirmed("Remove 1 webhook?", sentence, button="Remove the webhook", danger=True)
    if question is not None:
        return question
    await page.hf.webhooks.remove(webhook.id, tenant=page.tenant, by=page.actor)
    return page.redirect("/webhooks", "removed")


@pages.post("/webhooks/{webhook_id}/test", "manage_webhooks")
async def send_test(page: PageRequest) -> Any:
    webhook = await _own(page)
    sentence = f"Sends webhook.test to {webhook.url}, whatever it has subscribed to."
    question = await page.confirmed("Send 1 test?", sentence, button="Send a test")
    if question is not None:
        return question
    await page.hf.webhooks.test(webhook.id, tenant=page.tenant, by=page.actor)
    return page.redirect(f"/webhooks/{webhook.id}", "sent")


@pages.post("/webhooks/{webhook_id}/replay", "manage_webhooks")
async def replay(page: PageRequest) -> Any:
    """One message that failed, or all of them."""
    webhook, which = await _own(page), (await page.form()).get("delivery") or None
    if which is not None:
        delivery = await page.hf.webhooks.delivery(webhook.id, which, tenant=page.tenant)
        count, what = 1, f"{delivery.type} ({delivery.message})"
    else:
        failed = await page.hf.webhooks.deliveries(webhook.id, tenant=page.tenant, state="failed", limit=COUNTED_MAX)
        if not failed:
            raise InvalidOption("No message to this webhook has failed.")
        count = len(failed)
        what = "all that failed, oldest first" + (f"; there may be more than {count}" if count == COUNTED_MAX else "")
    title = f"Send {many(count, 'message')} again?"
    sentence = f"Sends to {webhook.url}, under the same id: {what}."
    question = await page.confirmed(title, sentence, button=f"Send {many(count, 'message')} again", count=count)
    if question is not None:
        return question
    await page.hf.webhooks.replay(webhook.id, which, tenant=page.tenant, by=page.actor)
    return await page.redirect_back(f"/webhooks/{webhook.id}", "sent")
