"""Machines that come and go with the work: which there are, for whom they work, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.errors import InvalidOption, MachinesUnavailable, NotFound
from holdfast.pages import Nav, Pages
from holdfast.processes.machines import POOL_MAX, MachineView, Usage
from holdfast.web.api.machines import visible_machines
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.words import many

SHOWN_MAX = 200
SHAPES = {"starting": "scheduled", "stopping": "draining", "gone": "cancelled", "unknown": "silent"}
"""States of machines by the shapes that jobs and workers have; the others have the name in common."""
_MONTH = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")

pages = Pages("machines", nav=[Nav("Machines", "/machines", "read_machines")])


@pages.get("/machines", "read_machines")
async def list_machines(page: PageRequest) -> Any:
    """A provider that does not answer takes nothing away but its own list."""
    month = page.query.get("month") or f"{page.now:%Y-%m}"
    if not _MONTH.fullmatch(month):
        raise InvalidOption("month= is such as 2026-11.")
    found: list[MachineView] = []
    silent = False
    try:
        found = await visible_machines(page.hf, page.caller)
    except MachinesUnavailable:
        silent = True
    usage: Sequence[Usage] = await page.hf.machines.usage(month=month, tenant=page.tenant)
    tenants = sorted((each for each in usage if each.subject == "tenant"), key=lambda each: -each.seconds)
    return page.render(
        "machines.html",
        machines=[(machine, SHAPES.get(machine.state, machine.state)) for machine in found[:SHOWN_MAX]],
        left_out=max(0, len(found) - SHOWN_MAX),
        provider=page.hf.settings.machine_provider,
        configured=page.hf.machines.configured,
        silent=silent,
        month=month,
        before=_month_before(month),
        this_month=f"{page.now:%Y-%m}",
        up=next((each for each in usage if each.subject == "machines"), None),
        tenants=tenants[:SHOWN_MAX],
        rate=page.hf.machines.rate,
        pool_max=min(POOL_MAX, page.hf.settings.machine_max),
    )


def _month_before(month: str) -> str:
    year, number = map(int, month.split("-"))
    return f"{year - 1:04}-12" if number == 1 else f"{year:04}-{number - 1:02}"


async def _listed(page: PageRequest, name: str | None) -> list[MachineView]:
    """All, or the one of this name: what is not there is said before anybody is asked."""
    found: list[MachineView] = await page.hf.machines.list()
    named = [machine for machine in found if name in (None, machine.name, machine.id)]
    if name is not None and not named:
        raise NotFound(f"There is no machine {name!r:.80} any more.")
    return named


@pages.post("/machines/start", "operate")
async def start(page: PageRequest) -> Any:
    name = (await page.form()).get("machine") or None
    await _listed(page, name)
    sentence = f"Starts {name}." if name else "Starts a stopped one of the pool, or makes a new one that goes when idle."
    question = await page.confirmed("Start 1 machine?", sentence, button="Start the machine")
    if question is not None:
        return question
    await page.hf.machines.start(name, by=page.actor)
    return await page.redirect_back("/machines", "asked")


@pages.post("/machines/stop", "operate")
async def stop(page: PageRequest) -> Any:
    name = (await page.form()).get("machine")
    running = [job_id for machine in await _listed(page, name) for job_id in machine.job_ids]
    sentence = (
        f"Stops {name}, on which {many(len(running), 'job')} run{'s' if len(running) == 1 else ''}: its worker takes nothing "
        "new, and what does not end in time goes back to the queue without costing an attempt."
    )
    question = await page.confirmed("Stop 1 machine?", sentence, button="Stop the machine", danger=True)
    if question is not None:
        return question
    await page.hf.machines.stop(name, by=page.actor)
    return await page.redirect_back("/machines", "asked")


@pages.post("/machines/scale", "operate")
async def scale(page: PageRequest) -> Any:
    asked = (await page.form()).get("size")
    if not re.fullmatch(r"[0-9]{1,4}", asked):
        raise InvalidOption(f"The pool is a whole number from 0 to {POOL_MAX}.")
    pool = [machine for machine in await _listed(page, None) if machine.kind == "pool"]
    sentence = (
        f"Keeps {many(int(asked), 'machine')} in the pool, which has {len(pool)} now. Those that are missing are made and stop "
        "again when idle; of those too many, the stopped ones are destroyed."
    )
    question = await page.confirmed("Change the size of the pool?", sentence, button="Change the pool", danger=True)
    if question is not None:
        return question
    await page.hf.machines.scale(int(asked), by=page.actor)
    return await page.redirect_back("/machines", "asked")
