"""The dashboard's page of an organization's integrations. A token goes in, and no page ever holds it again."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidOption
from holdfast.extraction.integrations import HOSTS, SHOWN, USERS
from holdfast.extraction.pages import PER_PAGE, application, choose, project_named
from holdfast.pages import Nav, Page, Pages

AT = "/integrations"
SAID = {"token": "The new token is stored, sealed; the next run uses it."}

pages = Pages("integrations", nav=[Nav("Integrations", AT, "manage_projects", "Organization")], said=SAID)


@pages.get(AT, "manage_projects")
async def list_integrations(page: Page) -> Any:
    if page.tenant is None:
        return await choose(page)
    cursor = page.query.get("cursor")
    after = None if cursor is None else project_named(cursor)
    found = await application(page).integrations.list(page.tenant, cursor=after, limit=PER_PAGE + 1)
    shown = found[:PER_PAGE]
    return page.render(
        "extraction/integrations.html",
        integrations=shown,
        next_cursor=shown[-1].id if len(found) > PER_PAGE else None,
        providers={name: f"{SHOWN[name]} ({HOSTS[name]})" if name in SHOWN else "another git host" for name in USERS},
        can_seal=application(page).integrations.can_seal,
    )


@pages.post("/integrations/add", "manage_projects")
async def add(page: Page) -> Any:
    """Done at once: a question in between would have to carry the token back and forth."""
    form = await page.form()
    if not form.get("token"):
        raise InvalidOption("An integration needs a token that the code host gave you.")
    await application(page).integrations.create(
        page.tenant_named(),
        form.get("provider"),
        token=form.get("token"),
        host=form.get("host") or None,
        user_name=form.get("user_name") or None,
        name=form.get("name"),
        by=page.actor,
    )
    return page.redirect(AT, "added")


@pages.post("/integrations/token", "manage_projects")
async def set_token(page: Page) -> Any:
    form = await page.form()
    which = project_named(form.get("id"))
    await application(page).integrations.set_token(page.tenant_named(), which, form.get("token"), by=page.actor)
    return page.redirect(AT, "token")


@pages.post("/integrations/remove", "manage_projects")
async def remove(page: Page) -> Any:
    tenant, integrations = page.tenant_named(), application(page).integrations
    found = await integrations.get(tenant, project_named((await page.form()).get("id")))
    sentence = f"Removes {found.name or found.shown_provider} ({found.host}) of {tenant}, and forgets its token."
    question = await page.confirmed("Remove 1 integration?", sentence, button="Remove the integration", danger=True)
    if question is not None:
        return question
    await integrations.remove(tenant, found.id, by=page.actor)
    return page.redirect(AT, "removed")
