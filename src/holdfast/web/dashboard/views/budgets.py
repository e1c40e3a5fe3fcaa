"""Budgets of an organization with their gauges, and the breakers of services that jobs need."""

from __future__ import annotations

import math
from typing import Any

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.views.organization import GROUP

SHOWN_MAX = 200

pages = Pages("budgets", nav=[Nav("Breakers", "/breakers", "operate"), Nav("Budgets", "/budgets", "read_budgets", GROUP)])


@pages.get("/budgets", "read_budgets")
async def list_budgets(page: PageRequest) -> Any:
    found = await page.hf.budgets.list(page.tenant, limit=SHOWN_MAX)
    return page.render("budgets.html", budgets=found, is_cut=len(found) == SHOWN_MAX)


@pages.post("/budgets/cap", "set_limits")
async def set_cap(page: PageRequest) -> Any:
    """Nobody raises his own budget: for the service role."""
    tenant, form = page.tenant_named(), await page.form()
    kind, cents = form.get("kind"), _cents(form.get("amount"))
    before = await page.hf.budgets.get(tenant, kind)
    sentence = f"{tenant} may spend {money(cents)} on {kind} in a month, instead of {money(before.cents)}."
    question = await page.confirmed("Change 1 budget?", sentence, button="Change the budget")
    if question is not None:
        return question
    await page.hf.budgets.set(tenant, kind, cents=cents, by=page.actor)
    return await page.redirect_back("/budgets", "saved")


def money(cents: float | None) -> str:
    return "what the plan says" if cents is None else f"{cents / 100:,.2f}"


def _cents(amount: str) -> float | None:
    """What a form says in whole money; empty: as the plan says."""
    if not amount:
        return None
    try:
        cents = float(amount.replace(",", "")) * 100
    except ValueError:
        cents = math.nan
    if not 0 <= cents < math.inf:
        raise InvalidOption(f"A budget is an amount of 0 or more, such as 49.50, or empty; not {amount!r:.50}.")
    return cents


@pages.get("/breakers", "operate")
async def list_breakers(page: PageRequest) -> Any:
    return page.render("breakers.html", breakers=await page.hf.breakers.list())


@pages.post("/breakers/open", "operate")
async def open_breaker(page: PageRequest) -> Any:
    name = await _service(page)
    sentence = f"Opens the breaker of {name}: jobs that need this service wait until somebody closes it."
    question = await page.confirmed(f"Hold all jobs that need {name}?", sentence, button="Open the breaker", danger=True)
    if question is not None:
        return question
    await page.hf.breakers.open(name, reason=(await page.form()).get("reason") or None, by=page.actor)
    return await page.redirect_back("/breakers", "saved")


@pages.post("/breakers/close", "operate")
async def close_breaker(page: PageRequest) -> Any:
    name = await _service(page)
    sentence = f"Closes the breaker of {name}: jobs that wait for it go on, spread over a while."
    question = await page.confirmed(f"Let jobs go on that need {name}?", sentence, button="Close the breaker")
    if question is not None:
        return question
    await page.hf.breakers.close(name, by=page.actor)
    return await page.redirect_back("/breakers", "saved")


async def _service(page: PageRequest) -> str:
    name = (await page.form()).get("service")
    if not name:
        raise InvalidOption("The form names no service.")
    return name
