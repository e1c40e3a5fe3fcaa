"""Events: what was unusual, and who did what. The audit trail."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.web.access import visible_event
from holdfast.web.dashboard.frame import PageRequest

PER_PAGE = 50
CURSOR_DIGITS_MAX = 18

pages = Pages("events", nav=[Nav("Events", "/events", "read_events")])


@pages.get("/events", "read_events")
async def list_events(page: PageRequest) -> Any:
    asked = page.query.get("cursor", "")
    if asked and (not asked.isdecimal() or len(asked) > CURSOR_DIGITS_MAX):
        raise InvalidOption("cursor= must be the number of an event.")
    found = await page.hf.events(tenant=page.tenant, before=int(asked) if asked else None, limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return page.render(
        "events.html",
        events=[visible_event(page.caller, event) | {"at": event.at} for event in shown],
        next_cursor=shown[-1].id if len(found) > PER_PAGE else None,
    )
