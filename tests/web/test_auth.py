"""Who calls: keys, the host's own login, sessions of browsers, and servers that nobody could log in to."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from holdfast import Holdfast
from holdfast.errors import ConfigError, Forbidden, Unauthenticated
from holdfast.web.access import Caller, Proof, Role
from holdfast.web.auth import Authenticator
from tests.web.people import client, key_of, served


def request(method: str = "GET", **headers: str) -> Request:
    named = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": method, "path": "/", "headers": named, "query_string": b""})


def bearer(token: str, **headers: str) -> Request:
    return request(authorization=f"Bearer {token}", **headers)


async def test_a_key_speaks_for_its_tenant(hf: Holdfast) -> None:
    """With its role, under its own name."""
    made = await hf.keys.create(tenant="acme", role="admin")
    caller = await Authenticator(hf).caller_of(bearer(made.secret))
    assert caller == Caller("acme", Role.ADMIN, f"key:{made.key.id}", key_id=made.key.id, proof=Proof.KEY)


async def test_a_service_key_speaks_across_tenants(hf: Holdfast) -> None:
    """It has no tenant of its own."""
    caller = await Authenticator(hf).caller_of(bearer(await key_of(hf, "service")))
    assert (caller.tenant, caller.role) == (None, Role.SERVICE)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer hf_" + "x" * 43},
        {"authorization": "Bearer a.b.c"},
        {"authorization": "Basic YTpi"},
        {"cookie": "holdfast_session=nothing"},
        {"cookie": "holdfast_session="},
    ],
)
async def test_who_shows_nothing_valid_is_nobody(hf: Holdfast, headers: dict[str, str]) -> None:
    """401, whatever was tried."""
    with pytest.raises(Unauthenticated):
        await Authenticator(hf).caller_of(request(**headers))


async def test_a_key_cannot_name_another_organization(hf: Holdfast) -> None:
    """The header chooses among one's own, it does not open others."""
    with pytest.raises(Forbidden):
        await Authenticator(hf).caller_of(bearer(await key_of(hf, "owner"), x_holdfast_tenant="globex"))


async def test_an_open_stream_ends_with_its_key(hf: Holdfast) -> None:
    """`still` asks the database."""
    made = await hf.keys.create(tenant="acme", role="viewer")
    authenticator = Authenticator(hf)
    caller = await authenticator.caller_of(bearer(made.secret))
    before = await authenticator.still(caller)
    await hf.keys.revoke(made.key.id)
    assert (before, await authenticator.still(caller)) == (True, False)


async def test_an_open_stream_ends_with_its_session(hf: Holdfast) -> None:
    """At logout, and when the key behind the session is revoked."""
    made = await hf.keys.create(tenant="acme", role="viewer")
    authenticator = Authenticator(hf)
    secrets_and_callers = [await authenticator.begin_session(made.secret) for _ in range(2)]
    (first, first_caller), (_, second_caller) = secrets_and_callers
    before = [await authenticator.still(caller) for _, caller in secrets_and_callers]
    await authenticator.end_session(first)
    after_logout = [await authenticator.still(first_caller), await authenticator.still(second_caller)]
    await hf.keys.revoke(made.key.id)
    assert (before, after_logout) == ([True, True], [False, True])
    assert not await authenticator.still(second_caller)


# -- the host's own login ----------------------------------------------------------------------------------------------


async def test_the_hosts_login_comes_first(hf: Holdfast) -> None:
    """Plain or async; None leaves the request to Holdfast."""
    boss = Caller("acme", Role.OWNER, "user:boss")

    async def authenticate(asked: Any) -> Caller | None:
        return boss if "x-boss" in asked.headers else None

    key = await key_of(hf, "viewer", "globex")
    for hook in (authenticate, lambda asked: boss if "x-boss" in asked.headers else None):
        authenticator = Authenticator(hf, hook)
        assert await authenticator.caller_of(bearer(key, x_boss="1")) == boss
        assert (await authenticator.caller_of(bearer(key))).tenant == "globex"


async def test_the_hosts_login_is_asked_again_for_a_stream(hf: Holdfast) -> None:
    """With the request that opened it; a lower role than then is not enough."""
    answers = [
        Caller("acme", Role.ADMIN, "user:a"),
        Caller("acme", Role.OWNER, "user:a"),
        Caller("acme", Role.VIEWER, "user:a"),
        None,
    ]
    authenticator = Authenticator(hf, lambda _: answers.pop(0))
    opened = request()
    caller = await authenticator.caller_of(opened)
    assert [await authenticator.still(caller, opened) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    "credential",
    [{"cookie": "theirs=1"}, {"authorization": "Basic YTpi"}, {"cookie": "theirs=1", "authorization": "Bearer x"}, {}],
    ids=["cookie", "basic", "cookie and bearer", "client certificate"],
)
async def test_a_strangers_page_cannot_use_the_hosts_login(hf: Holdfast, credential: dict[str, str]) -> None:
    """A browser adds cookies, Basic and certificates to what any page asks for, so a change must come from a page of ours."""
    authenticator = Authenticator(hf, lambda _: Caller("acme", Role.OWNER, "user:a"))
    for foreign in ({"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "http://evil.example"}):
        with pytest.raises(Forbidden):
            await authenticator.caller_of(request("POST", **credential, **foreign))
        assert await authenticator.caller_of(request("GET", **credential, **foreign))
    assert await authenticator.caller_of(request("POST", **credential, sec_fetch_site="same-origin"))
    assert await authenticator.caller_of(request("POST", **credential))


async def test_a_key_needs_no_page_of_ours(hf: Holdfast) -> None:
    """No browser adds it by itself: what sends it has it."""
    asked = bearer(await key_of(hf, "viewer"), origin="https://app.example.com", sec_fetch_site="cross-site")
    asked.scope["method"] = "POST"
    assert (await Authenticator(hf).caller_of(asked)).tenant == "acme"


async def test_a_hook_that_answers_nonsense_is_a_mistake(hf: Holdfast) -> None:
    """And nobody gets in by it."""
    with pytest.raises(TypeError):
        await Authenticator(hf, lambda _: "ana").caller_of(request())  # type: ignore[arg-type,return-value]


def test_only_the_service_has_no_tenant() -> None:
    """A caller that the host makes cannot reach across tenants by leaving his away."""
    with pytest.raises(ValueError, match="service"):
        Caller(None, Role.OWNER, "user:a")


# -- closed by default -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "dev"), [("127.0.0.1", False), ("0.0.0.0", True), ("example.com", True), ("", True)])
async def test_a_server_that_nobody_could_log_in_to_does_not_start(hf: Holdfast, host: str, dev: bool) -> None:
    """It says what to do instead."""
    with pytest.raises(ConfigError, match="holdfast keys create"):
        await Authenticator(hf).require_some_way_in(host, dev)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_development_on_this_machine_may_start_without_keys(hf: Holdfast, host: str) -> None:
    """One gets in by the login link."""
    await Authenticator(hf).require_some_way_in(host, dev=True)


async def test_a_key_a_secret_or_a_hook_is_a_way_in(hf: Holdfast, database_url: str) -> None:
    """A revoked key is none."""
    made = await hf.keys.create(tenant="acme")
    await Authenticator(hf).require_some_way_in("0.0.0.0")
    await hf.keys.revoke(made.key.id)
    with pytest.raises(ConfigError):
        await Authenticator(hf).require_some_way_in("0.0.0.0")
    await Authenticator(hf, lambda _: None).require_some_way_in("0.0.0.0")
    with_secret = Holdfast(database_url, jwt_secret="s" * 32)
    await Authenticator(with_secret).require_some_way_in("0.0.0.0")
    await with_secret.aclose()


# -- browsers ----------------------------------------------------------------------------------------------------------


async def test_a_browser_logs_in_with_a_key_and_out_again(hf: Holdfast) -> None:
    """The cookie is out of scripts' reach; after logout it opens nothing."""
    key = await key_of(hf, "admin")
    app = served(hf)
    async with client(app, base="https://jobs.example.com", Origin="https://jobs.example.com") as browser:
        login = await browser.post("/api/session", json={"key": key})
        cookie = login.headers["set-cookie"].lower()
        secret = browser.cookies["__Host-holdfast_session"]
        inside = await browser.get("/api/session")
        out = await browser.delete("/api/session")
        assert (login.status_code, login.json()["role"], inside.json()["tenant"]) == (200, "admin", "acme")
        assert all(word in cookie for word in ("httponly", "samesite=lax", "secure", "path=/"))
        assert key not in login.text and key not in cookie
        assert (out.status_code, "__Host-holdfast_session" in browser.cookies) == (204, False)
        browser.cookies.set("__Host-holdfast_session", secret)
        assert (await browser.get("/api/session")).status_code == 401


async def test_every_login_begins_a_new_session_and_ends_the_old_one(hf: Holdfast) -> None:
    """A session that a stranger planted is worth nothing."""
    key = await key_of(hf, "viewer")
    async with client(served(hf), base="http://localhost") as browser:
        browser.cookies.set("holdfast_session", "planted")
        await browser.post("/api/session", json={"key": key})
        secrets = [cookie.value for cookie in browser.cookies.jar if cookie.value != "planted"]
    async with client(served(hf), base="http://localhost", Cookie=f"holdfast_session={secrets[0]}") as browser:
        again = await browser.post("/api/session", json={"key": key})
        second = again.cookies["holdfast_session"]
        old = await browser.get("/api/session")
    assert secrets[0] != second
    assert old.status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        ({"Origin": "http://localhost"}, 201),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({}, 403),
    ],
)
async def test_a_change_by_cookie_must_come_from_a_page_of_ours(hf: Holdfast, headers: dict[str, str], status: int) -> None:
    """A browser sends the cookie along with what any page asks for."""
    async with client(served(hf), base="http://localhost") as browser:
        await browser.post("/api/session", json={"key": await key_of(hf, "admin")})
        answer = await browser.post("/api/projects", json={"id": "web"}, headers=headers)
        reading = await browser.get("/api/projects", headers=headers)
    assert (answer.status_code, reading.status_code) == (status, 200)
    assert status == 201 or answer.json()["code"] == "cross_site"


async def test_a_strangers_page_cannot_log_a_browser_in_or_out(hf: Holdfast) -> None:
    """Not even to an account of the stranger's own."""
    key = await key_of(hf, "viewer")
    async with client(served(hf), base="http://localhost") as browser:
        login = await browser.post("/api/session", json={"key": key}, headers={"Origin": "http://evil.example"})
        await browser.post("/api/session", json={"key": key})
        logout = await browser.delete("/api/session", headers={"Sec-Fetch-Site": "cross-site"})
        assert (await browser.get("/api/session")).status_code == 200
    assert [login.status_code, logout.status_code] == [403, 403]


async def test_a_login_link_lets_one_browser_in(hf: Holdfast) -> None:
    """For `holdfast dev`: once, and what it carries is in no server's log."""
    authenticator = Authenticator(hf)
    link = await authenticator.one_time_link("http://127.0.0.1:8000/")
    address, _, token = link.partition("#")
    async with client(served(hf, authenticator), base="http://127.0.0.1:8000") as browser:
        first = await browser.post("/api/session", json={"link": token})
        second = await browser.post("/api/session", json={"link": token})
        assert (await browser.get("/api/session")).json()["role"] == "service"
    assert (address, first.status_code, second.status_code) == ("http://127.0.0.1:8000/login", 200, 401)


@pytest.mark.parametrize(
    "body", [{}, {"key": "a", "link": "b"}, {"key": ""}, {"key": 1}, {"key": "x" * 300}, {"other": "x"}, []]
)
async def test_a_login_that_makes_no_sense_is_refused(hf: Holdfast, body: Any) -> None:
    """422, and no cookie."""
    async with client(served(hf)) as browser:
        answer = await browser.post("/api/session", json=body)
    assert (answer.status_code, "set-cookie" in answer.headers) == (422, False)
