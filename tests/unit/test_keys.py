"""API keys, members, projects and sessions as the Python API knows them, on both databases."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import Conflict, InvalidOption, NotFound
from holdfast.people.keys import Keys, expires_seconds
from holdfast.people.sessions import LINK_SECONDS, SESSION_SECONDS, Sessions
from holdfast.redact import redact
from holdfast.roles import Role


@pytest.fixture
def forgetful(hf_at: Holdfast) -> Keys:
    """Keys that ask the database each time, so that the test's clock counts."""
    hf_at.keys._cache.seconds = 0.0
    return hf_at.keys


async def events(hf: Holdfast) -> list[tuple[str, str, str, str]]:
    async with hf.transaction() as tx:
        table = "holdfast_events" if hf.store.name == "sqlite" else "holdfast.events"
        rows = await tx.fetch(f"SELECT tenant, type, actor, CAST(data AS text) AS data FROM {table} ORDER BY id")
    return [(row["tenant"], row["type"], row["actor"], row["data"]) for row in rows]


def whole_database(url: str) -> str:
    """Everything in it as one text."""
    if url.startswith("sqlite"):
        file = sqlite3.connect(url.removeprefix("sqlite:///"))
        text = "\n".join(file.iterdump())
        file.close()
        return text
    with psycopg.connect(url) as connection:
        tables = ("keys", "sessions", "events", "members")
        return "\n".join(str(connection.execute(f"SELECT * FROM holdfast.{name}".encode()).fetchall()) for name in tables)


async def test_a_new_key_opens_for_its_tenant_and_role(hf: Holdfast) -> None:
    """The secret that was shown once is enough."""
    made = await hf.keys.create(tenant="acme", role="admin", name="ci")
    key = await hf.keys.valid(made.secret)
    assert key is not None
    assert (key.id, key.tenant, key.role) == (made.key.id, "acme", Role.ADMIN)
    assert made.secret.startswith(made.key.prefix)


async def test_no_secret_is_stored(hf: Holdfast, database_url: str) -> None:
    """Keys, sessions and links are kept as hashes, and events tell none of them."""
    made = await hf.keys.create(tenant="acme", role="admin", name="ci")
    sessions = Sessions(hf)
    session = await sessions.begin(tenant="acme", role=Role.ADMIN, actor="key:x", key_id=made.key.id)
    link = await sessions.make_link(tenant=None, role=Role.SERVICE, actor="dev")
    stored = whole_database(database_url)
    assert made.key.id in stored
    assert [secret for secret in (made.secret, session, link) if secret in stored] == []


async def test_a_new_keys_repr_hides_its_secret(hf: Holdfast) -> None:
    """A line of a log that prints it gives nothing away, nor does text that quotes the secret."""
    made = await hf.keys.create(tenant="acme")
    assert made.secret not in repr(made)
    assert made.secret[9:] not in redact(f"the key {made.secret} was refused")


@pytest.mark.parametrize("wrong", ["", "hf_", "hf_" + "x" * 43, "hf_\udc80" + "x" * 42, "nonsense", "hf_" + "x" * 100_000])
async def test_a_wrong_secret_opens_nothing(hf: Holdfast, wrong: str) -> None:
    """Neither a well-formed one that nobody made nor something else."""
    await hf.keys.create(tenant="acme")
    assert await hf.keys.valid(wrong) is None


async def test_a_key_expires(hf_at: Holdfast, forgetful: Keys, clock: ManualClock) -> None:
    """By the database's clock."""
    made = await forgetful.create(tenant="acme", expires="90d")
    clock.advance(days=89)
    before = await forgetful.valid(made.secret)
    clock.advance(days=1)
    assert before is not None
    assert await forgetful.valid(made.secret) is None


async def test_a_key_is_not_remembered_past_its_end(hf_at: Holdfast, clock: ManualClock) -> None:
    """The cache holds it no longer than the key itself lives."""
    made = await hf_at.keys.create(tenant="acme", expires=0.000001)
    await hf_at.keys.valid(made.secret)
    assert hf_at.keys._cache.get(next(iter(hf_at.keys._cache._entries))) is None


async def test_a_revoked_key_opens_nothing_any_more(hf: Holdfast) -> None:
    """At once in the process that revokes it, although it was used a moment ago."""
    made = await hf.keys.create(tenant="acme")
    await hf.keys.valid(made.secret)
    revoked = await hf.keys.revoke(made.key.id, by="ana")
    assert (revoked.revoked_by, await hf.keys.valid(made.secret)) == ("ana", None)


async def test_another_process_believes_a_revoked_key_for_two_seconds_at_most(hf: Holdfast, database_url: str) -> None:
    """Its cache is short, and what it has forgotten it asks for."""
    other = Holdfast(database_url)
    try:
        made = await hf.keys.create(tenant="acme")
        await other.keys.valid(made.secret)
        await hf.keys.revoke(made.key.id)
        assert other.keys._cache.seconds <= 2
        other.keys._cache.clear()
        assert await other.keys.valid(made.secret) is None
    finally:
        await other.aclose()


async def test_a_key_that_is_used_again_costs_no_query(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """An enqueue over HTTP does not pay for it each time."""
    made = await hf.keys.create(tenant="acme")
    first = await hf.keys.valid(made.secret)

    async def no_query(*_: Any) -> Any:
        raise AssertionError("asked the database")

    monkeypatch.setattr(hf.store, "shared", no_query)
    assert await hf.keys.valid(made.secret) == first


async def test_last_use_is_written_once_a_minute(hf_at: Holdfast, forgetful: Keys, clock: ManualClock) -> None:
    """However often the key is used."""
    made = await forgetful.create(tenant="acme")
    seen = []
    for seconds in (0, 30, 29, 1):
        clock.advance(seconds)
        await forgetful.valid(made.secret)
        used = (await forgetful.get(made.key.id)).last_used_at
        assert used is not None
        seen.append((clock.now() - used).total_seconds())
    assert seen == [0, 30, 59, 0]


async def test_a_key_is_revoked_once(hf: Holdfast) -> None:
    """The second time says so, and a key that is not there or another tenant's is not found."""
    made = await hf.keys.create(tenant="acme")
    with pytest.raises(NotFound):
        await hf.keys.revoke(made.key.id, tenant="globex")
    await hf.keys.revoke(made.key.id)
    with pytest.raises(Conflict, match="already"):
        await hf.keys.revoke(made.key.id)
    with pytest.raises(NotFound):
        await hf.keys.revoke("nothing")


async def test_keys_are_listed_newest_first_page_by_page(hf: Holdfast) -> None:
    """Of one tenant, or all of them with the service's."""
    made = [await hf.keys.create(tenant="acme", name=str(no)) for no in range(3)]
    service = await hf.keys.create(role="service")
    await hf.keys.create(tenant="globex")
    first = await hf.keys.list(tenant="acme", limit=2)
    rest = await hf.keys.list(tenant="acme", limit=2, cursor=first[-1].id)
    assert {key.id for key in (*first, *rest)} == {one.key.id for one in made}
    assert [len(first), len(rest)] == [2, 1]
    assert service.key.id in {key.id for key in await hf.keys.list()}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"tenant": ""},
        {"tenant": "a\0"},
        {"tenant": "acme", "role": "king"},
        {"tenant": "acme", "role": "service"},
        {"tenant": "acme", "expires": "soon"},
        {"tenant": "acme", "expires": "0d"},
        {"tenant": "acme", "expires": -1},
        {"tenant": "acme", "expires": float("nan")},
        {"tenant": "acme", "expires": "999999w"},
        {"tenant": "acme", "name": "x" * 201},
    ],
)
async def test_a_key_that_cannot_be_is_refused(hf: Holdfast, wrong: dict[str, Any]) -> None:
    """And nothing is written."""
    with pytest.raises(InvalidOption):
        await hf.keys.create(**wrong)
    assert await hf.keys.list() == []


def test_times_are_written_as_people_write_them() -> None:
    """90d, 12h and so on, seconds, a timedelta, or never."""
    given = ["45s", "30m", "12h", "90d", "2w", 5, timedelta(hours=1), None]
    assert [expires_seconds(one) for one in given] == [45, 1800, 43_200, 7_776_000, 1_209_600, 5, 3600, None]


async def test_changes_of_keys_and_members_are_in_the_audit_trail(hf: Holdfast) -> None:
    """Who did what, under the tenant."""
    made = await hf.keys.create(tenant="acme", role="admin", by="ana")
    await hf.keys.revoke(made.key.id, by="bo")
    await hf.members.add("acme", "u1", "owner", by="ana")
    await hf.members.add("acme", "u2", "viewer", by="ana")
    await hf.members.set_role("acme", "u2", "admin", by="ana")
    await hf.members.remove("acme", "u2", by="ana")
    found = await events(hf)
    assert [(tenant, kind, actor) for tenant, kind, actor, _ in found] == [
        ("acme", "key.created", "ana"),
        ("acme", "key.revoked", "bo"),
        ("acme", "member.added", "ana"),
        ("acme", "member.added", "ana"),
        ("acme", "member.role_changed", "ana"),
        ("acme", "member.removed", "ana"),
    ]
    assert all(made.key.id in data for _, kind, _, data in found if kind.startswith("key"))


async def test_the_last_owner_stays(hf: Holdfast) -> None:
    """He can be neither removed nor demoted, until there is another."""
    await hf.members.add("acme", "u1", "owner")
    await hf.members.add("acme", "u2", "admin")
    for attempt in (hf.members.remove("acme", "u1"), hf.members.set_role("acme", "u1", "admin")):
        with pytest.raises(Conflict) as refused:
            await attempt
        assert refused.value.code == "last_owner"
    await hf.members.set_role("acme", "u2", "owner")
    await hf.members.remove("acme", "u1")
    assert [(member.user_id, member.role) for member in await hf.members.list("acme")] == [("u2", "owner")]


async def test_two_owners_who_leave_at_the_same_time_leave_one(hf: Holdfast) -> None:
    """Each sees the other's change before he goes."""
    for round_no in range(5):
        tenant = f"acme{round_no}"
        for user in ("u1", "u2"):
            await hf.members.add(tenant, user, "owner")
        ends = await asyncio.gather(
            hf.members.remove(tenant, "u1"), hf.members.set_role(tenant, "u2", "viewer"), return_exceptions=True
        )
        refused = [end.code for end in ends if isinstance(end, Conflict)]
        owners = [member for member in await hf.members.list(tenant) if member.role == "owner"]
        assert (refused, len(owners)) == (["last_owner"], 1)


async def test_a_member_is_added_once(hf: Holdfast) -> None:
    """A second time is a conflict and changes nothing; one who is not there is not found."""
    await hf.members.add("acme", "u1", "viewer")
    with pytest.raises(Conflict):
        await hf.members.add("acme", "u1", "owner")
    assert (await hf.members.get("acme", "u1")).role == "viewer"
    for attempt in (
        hf.members.remove("acme", "u2"),
        hf.members.set_role("acme", "u2", "admin"),
        hf.members.get("globex", "u1"),
    ):
        with pytest.raises(NotFound):
            await attempt


async def test_projects_belong_to_their_tenant(hf: Holdfast) -> None:
    """The same id may be two tenants'; renaming and removing one leaves the other alone."""
    await hf.projects.create("acme", "web", name="Website")
    await hf.projects.create("globex", "web")
    with pytest.raises(Conflict):
        await hf.projects.create("acme", "web")
    await hf.projects.rename("acme", "web", "Shop")
    assert (await hf.projects.get("acme", "web")).name == "Shop"
    await hf.projects.remove("acme", "web")
    with pytest.raises(NotFound):
        await hf.projects.get("acme", "web")
    assert [(project.id, project.name) for project in await hf.projects.list("globex")] == [("web", "web")]


async def test_a_session_ends_after_its_time(hf_at: Holdfast, clock: ManualClock) -> None:
    """By the database's clock, and old ones are swept away at the next login."""
    sessions = Sessions(hf_at)
    sessions._cache.seconds = 0.0
    secret = await sessions.begin(tenant="acme", role=Role.VIEWER, actor="key:x", key_id=None)
    clock.advance(SESSION_SECONDS - 1)
    before = await sessions.valid(secret)
    clock.advance(2)
    assert before is not None
    assert await sessions.valid(secret) is None
    await sessions.begin(tenant="acme", role=Role.VIEWER, actor="key:x", key_id=None)
    async with hf_at.transaction() as tx:
        table = "holdfast_sessions" if hf_at.store.name == "sqlite" else "holdfast.sessions"
        assert len(await tx.fetch(f"SELECT hash FROM {table}")) == 1


async def test_a_login_link_works_once_and_for_ten_minutes(hf_at: Holdfast, clock: ManualClock) -> None:
    """Of two browsers at the same moment one gets in; an old link opens nothing, and no link is a session."""
    sessions = Sessions(hf_at)
    link = await sessions.make_link(tenant=None, role=Role.SERVICE, actor="dev")
    assert await sessions.valid(link) is None
    ends = await asyncio.gather(*(sessions.begin_by_link(link) for _ in range(4)))
    assert sum(end is not None for end in ends) == 1
    old = await sessions.make_link(tenant=None, role=Role.SERVICE, actor="dev")
    clock.advance(LINK_SECONDS + 1)
    assert await sessions.begin_by_link(old) is None


def test_sync_programs_make_keys_too(sqlite_url: str, tmp_path: Path) -> None:
    """Through the same facade as everything else."""
    hf = Holdfast(sqlite_url)
    made = hf.keys.create_sync(tenant="acme", role="member")
    hf.members.add_sync("acme", "u1")
    assert hf.keys.revoke_sync(made.key.id).revoked_at is not None
    assert hf.members.remove_sync("acme", "u1").role == "member"
    hf.close()
