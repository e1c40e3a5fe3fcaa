"""One organization: what it may do, what it uses of that, and why it waits."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.store.protocol import Tenant
from holdfast.web.dashboard import words
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.rows import row
from holdfast.web.dashboard.views.queues import whole_or_none
from holdfast.web.dashboard.views.tenants import tenant_page
from holdfast.why import why_of_tenant

RUNNING_SHOWN = 10
GROUP = "Organization"

pages = Pages("organization", nav=[Nav("Limits", "/organization", "read_tenant", GROUP)])


async def choose(page: PageRequest) -> Any:
    """For the service role, which has to say which organization is meant."""
    rows, after = await tenant_page(page)
    return page.render("choose.html", rows=rows, after=after)


@pages.get("/organization", "read_tenant")
async def show(page: PageRequest) -> Any:
    if page.tenant is None:
        return await choose(page)
    tenant: Tenant = await page.hf.tenants.get(page.tenant)
    depth = (await page.hf.store.tenant_depths([tenant.id]))[tenant.id]
    running = await page.hf.store.tenant_running(tenant.id, RUNNING_SHOWN)
    return page.render(
        "organization.html",
        tenant=tenant,
        depth=depth,
        why=await why_of_tenant(page.hf.store, tenant, depth.queued),
        running=[row(page, job) for job in running],
        plans=await page.hf.plans.list(),
    )


@pages.post("/organization/pause", "pause")
async def pause(page: PageRequest) -> Any:
    name = page.tenant_named()
    depth = (await page.hf.store.tenant_depths([name]))[name]
    sentence = f"Pauses {name}: {words.many(depth.queued, 'waiting job')} will not start; what runs goes on."
    question = await page.confirmed(f"Pause {name}?", sentence, button="Pause it", danger=True)
    if question is not None:
        return question
    await page.hf.tenants.pause(name, by=page.actor)
    return await page.redirect_back("/organization", "paused")


@pages.post("/organization/resume", "pause")
async def resume(page: PageRequest) -> Any:
    name = page.tenant_named()
    depth = (await page.hf.store.tenant_depths([name]))[name]
    sentence = f"Resumes {name}: {words.many(depth.queued, 'waiting job')} may start."
    question = await page.confirmed(f"Resume {name}?", sentence, button="Resume it")
    if question is not None:
        return question
    await page.hf.tenants.resume(name, by=page.actor)
    return await page.redirect_back("/organization", "resumed")


@pages.post("/organization/limits", "set_limits")
async def set_limits(page: PageRequest) -> Any:
    """Nobody raises his own plan: for the service role."""
    name = page.tenant_named()
    form = await page.form()
    before: Tenant = await page.hf.tenants.get(name)
    plan = form.get("plan") or before.plan
    if plan not in {known.name for known in await page.hf.plans.list()}:
        raise InvalidOption(f"There is no plan called {plan!r:.50}.")
    limit = whole_or_none(form.get("limit"), "limit")
    depth = whole_or_none(form.get("queue_depth"), "queue depth")
    sentence = (
        f"{name} gets plan {plan} (now {before.plan}), {_own(limit)} running at once (now {before.limit}) and "
        f"{_own(depth)} waiting (now {before.queue_depth:,}). Holds from the next claim on."
    )
    question = await page.confirmed(f"Change the limits of {name}?", sentence, button="Change the limits")
    if question is not None:
        return question
    await page.hf.tenants.set(name, plan=plan, limit=limit, queue_depth=depth, by=page.actor)
    return await page.redirect_back("/organization", "saved")


def _own(number: int | None) -> str:
    return "as many as the plan says" if number is None else words.number(number)
