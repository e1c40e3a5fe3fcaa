"""Failed logins are throttled by address and credential: one bad client behind a proxy locks out no one else."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.web.access import Caller, Role
from holdfast.web.auth import Authenticator
from holdfast.web.ratelimit import NAMES_KNOWN_MAX, TokenBuckets
from tests.web.people import client, key_of, served
from tests.web.scene import Scene

WRONG = "hf_" + "x" * 43
LOGINS = [("/api/session", "json", 200), ("/login", "data", 303)]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_a_wrong_key_locks_out_no_valid_one_of_its_address(hf: Holdfast) -> None:
    """Keys, sessions and logins of others pass while it is refused, also those that were never seen before."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=3))
    key = await key_of(scene.hf, "viewer")
    async with client(scene.app, base="http://localhost") as clients:
        wrong = [(await clients.get("/api/jobs", headers=bearer(WRONG))).status_code for _ in range(5)]
        assert wrong == [401, 401, 401, 429, 429]
        assert (await clients.get("/api/jobs", headers=bearer(key))).status_code == 200
        assert (await clients.post("/api/session", json={"key": key})).status_code == 200
        assert (await clients.get("/api/session")).status_code == 200
    await scene.hf.aclose()


@pytest.mark.parametrize(("path", "form", "welcome"), LOGINS)
async def test_a_login_with_a_wrong_key_is_throttled_alone(hf: Holdfast, path: str, form: str, welcome: int) -> None:
    """By the API and by the page, which others at the same address can use meanwhile."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=2))
    key = await key_of(scene.hf, "viewer")
    async with client(scene.app) as browser:
        keys = [WRONG, WRONG, WRONG, key]
        codes = [(await browser.post(path, **{form: {"key": one}})).status_code for one in keys]  # type: ignore[arg-type]
    assert codes == [401, 401, 429, welcome]
    await scene.hf.aclose()


async def test_a_session_that_ended_is_throttled_alone(hf: Holdfast) -> None:
    """A page left open keeps asking with it."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=2))
    async with client(scene.app, base="http://localhost", Cookie="holdfast_session=ended") as browser:
        codes = [(await browser.get("/api/jobs")).status_code for _ in range(3)]
        key = await key_of(scene.hf, "viewer")
        others = await browser.post("/api/session", json={"key": key}, headers={"Origin": "http://localhost"})
    assert (codes, others.status_code) == ([401, 401, 429], 200)
    await scene.hf.aclose()


async def test_a_client_without_credentials_is_sent_to_the_login_however_often_it_asks(hf: Holdfast) -> None:
    """It costs no look into the database, and all browsers behind a proxy would be refused with it."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=2))
    async with client(scene.app) as browser:
        answers = [await browser.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [303] * 4
    await scene.hf.aclose()


async def test_the_hosts_login_is_asked_whatever_failed_before(hf: Holdfast) -> None:
    """It may go by what Holdfast does not read, such as a client certificate."""

    def by_certificate(asked: object) -> Caller | None:
        return Caller("acme", Role.VIEWER, "user:a") if "x-client-cert" in asked.headers else None  # type: ignore[attr-defined]

    app = served(hf, Authenticator(hf, by_certificate))
    app.state.web.strangers = TokenBuckets(1)
    async with client(app, WRONG) as clients:
        failed = [(await clients.get("/api/session")).status_code for _ in range(2)]
        known = await clients.get("/api/session", headers={"X-Client-Cert": "a"})
    assert (failed, known.status_code) == ([401, 429], 200)


def test_random_credentials_take_bounded_memory() -> None:
    """The oldest are forgotten."""
    buckets = TokenBuckets(1)
    for n in range(NAMES_KNOWN_MAX + 5):
        buckets.take(str(n))
    assert len(buckets._known) == NAMES_KNOWN_MAX
    assert (buckets.wait("0"), buckets.wait(str(NAMES_KNOWN_MAX + 4)) > 0) == (0.0, True)
