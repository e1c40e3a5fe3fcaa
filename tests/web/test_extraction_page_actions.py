"""What the dashboard's pages of extractions do: asked first, refused to others, and written down with who did it."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.extraction.errors import NoRepository
from tests.support.extractions import components
from tests.web.extraction_scene import CONNECT, SHOP, SOURCE, TABLE, TOKEN, Shown
from tests.web.test_dashboard_actions import confirm, events_of, said
from tests.web.test_dashboard_safety import browser


async def test_connected_extracted_cancelled_retried(both: Shown) -> None:
    """By a member, from the pages alone; each action is in the audit trail with who did it."""
    member = "acme member"
    begun = await both.send(member, "/extraction/connect", **CONNECT)
    assert (begun.status_code, begun.headers["location"]) == (303, "/extraction/project?done=extracting&id=shop")
    assert "Queued: the extraction starts as soon as a worker is free." in said(
        await both.get(member, begun.headers["location"])
    )
    question = await both.send(member, "/extraction/cancel", **SHOP)
    assert "Cancel 1 extraction?" in said(question)
    assert (await confirm(both, member, "/extraction/cancel", question)).headers["location"].endswith("done=cancelled&id=shop")
    assert (await both.staged.extraction.get("acme", "shop")).status == "cancelled"
    question = await both.send(member, "/extraction/retry", **SHOP)
    assert (await confirm(both, member, "/extraction/retry", question)).status_code == 303
    await both.work()
    question = await both.send(member, "/extraction/start", **SHOP)
    assert f"Clones {SOURCE}, branch main, below web and scans it again." in said(question)
    assert (await confirm(both, member, "/extraction/start", question)).status_code == 303
    repository = await both.staged.extraction.get("acme", "shop")
    assert (repository.status, repository.branch, repository.path) == ("queued", "main", "web")
    actor = await both.actor(member)
    noted = await events_of(both, tenant="acme", limit=50)
    for kind in ("repository.connected", "extraction.started", "job.cancelled", "job.retried"):
        assert (kind, actor) in noted
    assert noted.count(("extraction.started", actor)) == 2


async def test_a_second_extraction_is_told_kindly(shown: Shown) -> None:
    """Where the active one is seen; nothing is changed or queued."""
    job = await shown.staged.connect()
    for path, form in (("/extraction/start", SHOP), ("/extraction/connect", {**CONNECT, "branch": "other"})):
        answer = await shown.send("acme member", path, **form)
        assert answer.status_code == 409
        assert "Already in progress" in said(answer) and f'href="/jobs/{job.id}"' in answer.text
    assert [one.id for one in await shown.hf.jobs()] == [job.id]
    assert (await shown.staged.extraction.get("acme", "shop")).branch == "main"
    text = (await shown.page("/extraction/settings", "acme admin")).text
    assert 'action="/extraction/connect"' not in text and 'action="/extraction/cancel"' in text


async def test_admins_change_without_extracting_and_disconnect(shown: Shown) -> None:
    """A member who sends the same is refused, and nothing is changed."""
    await shown.extract({"dependencies": components("a")})
    change = {**CONNECT, "branch": "next", "verb": "save"}
    assert (await shown.send("acme member", "/extraction/connect", **change)).status_code == 403
    assert (await shown.staged.extraction.get("acme", "shop")).branch == "main"
    assert (await shown.send("acme admin", "/extraction/connect", **change)).status_code == 303
    changed = await shown.staged.extraction.get("acme", "shop")
    assert (changed.branch, changed.status) == ("next", "ready")
    question = await shown.send("acme admin", "/extraction/disconnect", **SHOP)
    done = await confirm(shown, "acme admin", "/extraction/disconnect", question)
    assert done.headers["location"] == "/extraction?done=disconnected"
    with pytest.raises(NoRepository):
        await shown.staged.extraction.get("acme", "shop")
    assert ("repository.disconnected", await shown.actor("acme admin")) in await events_of(shown, tenant="acme", limit=50)


async def test_addresses_that_strangers_may_not_name_are_refused(shown: Shown) -> None:
    """By the rules of the API."""
    for source in ("/etc", "http://example.com/x", "https://127.0.0.1/x", "https://u:p@example.com/x", ""):
        answer = await shown.send("acme owner", "/extraction/connect", **{**CONNECT, "source": source})
        assert answer.status_code == 422, source
    assert await shown.hf.jobs() == []


async def test_a_token_goes_in_and_is_never_shown(shown: Shown) -> None:
    """Added, used, replaced and removed by admins; not removed while a project uses it; each in the audit trail."""
    admin = "acme admin"
    assert (await shown.send(admin, "/integrations/add", provider="github", token=TOKEN, name="Ours")).status_code == 303
    [made] = await shown.staged.extraction.integrations.list("acme")
    assert made.has_token and made.created_by == await shown.actor(admin)
    assert (await shown.send(admin, "/integrations/token", id=made.id, token=f"{TOKEN}2")).status_code == 303
    await shown.send("acme member", "/extraction/connect", **CONNECT, integration=made.id)
    question = await shown.send(admin, "/integrations/remove", id=made.id)
    used = await confirm(shown, admin, "/integrations/remove", question)
    assert used.status_code == 409 and "used by shop" in said(used)
    shown_to_member = await shown.page("/extraction/settings", "acme member")
    listed = await shown.page("/integrations", admin)
    assert "Ours" in listed.text and "Ours" in shown_to_member.text
    for answer in (question, used, shown_to_member, listed):
        assert TOKEN not in answer.text
    await shown.work()
    question = await shown.send(admin, "/extraction/disconnect", **SHOP)
    await confirm(shown, admin, "/extraction/disconnect", question)
    question = await shown.send(admin, "/integrations/remove", id=made.id)
    assert (await confirm(shown, admin, "/integrations/remove", question)).status_code == 303
    assert await shown.staged.extraction.integrations.list("acme") == []
    noted = {kind for kind, actor in await events_of(shown, tenant="acme", limit=50) if actor == await shown.actor(admin)}
    assert {"integration.added", "integration.token_replaced", "integration.removed"} <= noted


async def test_without_a_sealing_key_no_token_is_asked_for(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says what is to be set, and a token that is sent all the same is refused."""
    monkeypatch.delenv("HOLDFAST_ENCRYPTION_KEYS", raising=False)
    hf = Holdfast(sqlite_url)
    shown = Shown(hf, vault=None)
    await hf.migrate()
    text = (await shown.page("/integrations", "acme admin")).text
    assert "HOLDFAST_ENCRYPTION_KEYS" in text and 'action="/integrations/add"' not in text
    assert (await shown.send("acme admin", "/integrations/add", provider="gitlab", token=TOKEN)).status_code == 409
    await hf.aclose()


async def test_another_sites_form_is_refused(shown: Shown) -> None:
    """With the cookie of an admin: nothing is connected, started or removed."""
    await shown.extract({"dependencies": components("a")})
    async with browser(shown.app) as client:
        await client.post("/login", data={"key": await shown.key("acme admin")})
        for call, row in TABLE.items():
            if call.startswith("POST"):
                form = {**(row.form or {}), "confirm": "1"}
                answer = await client.post(call.split(" ")[1], data=form, headers={"Sec-Fetch-Site": "cross-site"})
                assert answer.status_code == 403, call
    assert (await shown.staged.extraction.get("acme", "shop")).status == "ready"
    assert len(await shown.hf.jobs(task="extract")) == 1
