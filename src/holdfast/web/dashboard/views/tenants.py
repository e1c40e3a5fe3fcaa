"""All organizations, for the service role: gauges, who waits and for what."""

from __future__ import annotations

from typing import Any

from holdfast.pages import Nav, Pages
from holdfast.store.protocol import Depth, Tenant
from holdfast.web.dashboard.frame import PageRequest

PER_PAGE = 50

pages = Pages("tenants", nav=[Nav("Organizations", "/tenants", "operate")])


Rows = list[tuple[Tenant, Depth]]


async def tenant_page(page: PageRequest) -> tuple[Rows, str | None]:
    """By name, with what each has waiting, as it was a moment ago; and where the next page begins."""
    after = page.query.get("after", "")
    return await page.remembered("tenants", lambda: _counted(page, after), part=after)


async def _counted(page: PageRequest, after: str) -> tuple[Rows, str | None]:
    found: list[Tenant] = await page.hf.tenants.list(after=after or None, limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    depths = await page.hf.store.tenant_depths([tenant.id for tenant in shown]) if shown else {}
    rows = [(tenant, depths.get(tenant.id) or Depth(0, tenant.queue_depth)) for tenant in shown]
    return rows, shown[-1].id if len(found) > PER_PAGE else None


@pages.get("/tenants", "operate")
async def list_tenants(page: PageRequest) -> Any:
    asked = page.query.get("find", "").strip()
    if asked:
        return page.redirect("/organization", tenant=asked)
    rows, after = await tenant_page(page)
    return page.render("tenants.html", rows=rows, after=after)
