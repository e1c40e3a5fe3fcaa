"""Schedules: what happens by the clock, when next, how it went last; paused, resumed, run now."""

from __future__ import annotations

from typing import Any

from holdfast.pages import Nav, Pages
from holdfast.schedule import Schedule
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.routing import scope

SHOWN_MAX = 200

pages = Pages("schedules", nav=[Nav("Schedules", "/schedules", "read_schedules")])


@pages.get("/schedules", "read_schedules")
async def list_schedules(page: PageRequest) -> Any:
    found = await page.hf.schedules.list(tenant=page.tenant, limit=SHOWN_MAX)
    return page.render("schedules.html", schedules=found, is_cut=len(found) == SHOWN_MAX)


@pages.post("/schedules/pause", "manage_schedules")
async def pause(page: PageRequest) -> Any:
    schedule = await _named(page)
    sentence = (
        f"Pauses {schedule.name}: it makes no jobs until it is resumed, and what falls into the pause is not made up for."
    )
    question = await page.confirmed("Pause 1 schedule?", sentence, button="Pause the schedule", danger=True)
    if question is not None:
        return question
    await page.hf.schedules.pause(schedule.name, tenant=schedule.tenant, by=page.actor)
    return await page.redirect_back("/schedules", "paused")


@pages.post("/schedules/resume", "manage_schedules")
async def resume(page: PageRequest) -> Any:
    schedule = await _named(page)
    question = await page.confirmed("Resume 1 schedule?", f"Resumes {schedule.name}.", button="Resume the schedule")
    if question is not None:
        return question
    await page.hf.schedules.resume(schedule.name, tenant=schedule.tenant, by=page.actor)
    return await page.redirect_back("/schedules", "resumed")


@pages.post("/schedules/run", "manage_schedules")
async def run_now(page: PageRequest) -> Any:
    schedule = await _named(page)
    sentence = f"Does what {schedule.name} does, once and now. Its next time stays as it is."
    question = await page.confirmed("Run 1 schedule now?", sentence, button="Run it now")
    if question is not None:
        return question
    job = await page.hf.schedules.run_now(schedule.name, tenant=schedule.tenant, by=page.actor)
    return page.redirect("/schedules" if job is None else f"/jobs/{job.id}", "started")


async def _named(page: PageRequest) -> Schedule:
    form = await page.form()
    found: Schedule = await page.hf.schedules.get(form.get("schedule"), tenant=scope(page.caller, form.get("of") or None))
    return found
