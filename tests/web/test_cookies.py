"""The cookie of a browser's session: its attributes and its name, on this machine and behind proxies."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.web.people import client, key_of, served

HTTPS = {"Origin": "https://jobs.example.com"}


@pytest.mark.parametrize(
    ("base", "headers", "secure"),
    [
        ("http://127.0.0.1:8000", {}, False),
        ("http://localhost", {}, False),
        ("http://localhost", {"Origin": "http://localhost"}, False),
        ("http://localhost:8000", {"X-Forwarded-Proto": "http"}, False),
        ("http://jobs.example.com", {}, True),
        ("https://localhost", {}, True),
        ("http://127.0.0.1:8080", {**HTTPS, "Sec-Fetch-Site": "same-origin"}, True),
        ("http://127.0.0.1:8080", {"X-Forwarded-Proto": "https"}, True),
        ("http://127.0.0.1:8080", {"Forwarded": "for=10.0.0.9;proto=https"}, True),
        ("http://127.0.0.1:8080", {"Origin": "http://jobs.example.com", "Sec-Fetch-Site": "same-origin"}, True),
        ("http://127.0.0.1:8080", {"Origin": "null", "Sec-Fetch-Site": "same-origin"}, True),
    ],
)
async def test_only_plain_http_on_this_machine_has_a_cookie_without_secure(
    hf: Holdfast, base: str, headers: dict[str, str], secure: bool
) -> None:
    """A proxy that ends TLS on this machine is found out by what it forwards, or by the page that the browser names."""
    async with client(served(hf), base=base) as browser:
        login = await browser.post("/api/session", json={"key": await key_of(hf, "viewer")}, headers=headers)
    name = "__Host-holdfast_session" if secure else "holdfast_session"
    cookie = login.headers["set-cookie"]
    assert (cookie.startswith(f"{name}="), "; Secure" in cookie, "Domain" in cookie) == (True, secure, False)


async def test_a_session_behind_a_proxy_that_forwards_nothing_works_to_its_end(hf: Holdfast) -> None:
    """What is read and dropped later is the cookie that the login set, although reading names no page."""
    async with client(served(hf), base="http://127.0.0.1:8080") as behind:
        login = await behind.post(
            "/api/session", json={"key": await key_of(hf, "viewer")}, headers={**HTTPS, "Sec-Fetch-Site": "same-origin"}
        )
        cookie = login.headers["set-cookie"].partition(";")[0]
        inside = await behind.get("/api/session", headers={"Cookie": cookie})
        sent = {"Cookie": cookie, **HTTPS, "Sec-Fetch-Site": "same-origin"}
        out = await behind.delete("/api/session", headers=sent)
        after = await behind.get("/api/session", headers={"Cookie": cookie})
    assert (inside.status_code, out.status_code, after.status_code) == (200, 204, 401)
    dropped = out.headers["set-cookie"]
    assert dropped.startswith('__Host-holdfast_session=""') and "Secure" in dropped and "Path=/;" in dropped


async def test_a_cookie_that_another_host_planted_opens_nothing(hf: Holdfast) -> None:
    """Without the prefix, a page of a neighbouring domain could log a browser in to an account of its own."""
    async with client(served(hf), base="http://localhost") as browser:
        await browser.post("/api/session", json={"key": await key_of(hf, "viewer")})
        secret = browser.cookies["holdfast_session"]
    async with client(served(hf), base="https://jobs.example.com") as browser:
        planted = await browser.get("/api/session", headers={"Cookie": f"holdfast_session={secret}"})
        own = await browser.get("/api/session", headers={"Cookie": f"__Host-holdfast_session={secret}"})
    assert (planted.status_code, own.status_code) == (401, 200)


async def test_below_a_prefix_the_cookie_has_the_prefixs_path(hf: Holdfast) -> None:
    """Browsers take `__Host-` for the path / alone."""
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/jobs", served(hf))
    async with client(outer, base="https://shop.example") as browser:
        login = await browser.post("/jobs/api/session", json={"key": await key_of(hf, "viewer")})
        inside = await browser.get("/jobs/api/session")
    cookie = login.headers["set-cookie"]
    assert cookie.startswith("__Secure-holdfast_session=") and "Path=/jobs;" in cookie and inside.status_code == 200


@pytest.mark.parametrize("headers", [{"Origin": "http://[::1"}, {"Host": "[::1"}, {"Origin": "http://[x]:y"}], ids=str)
async def test_an_origin_or_host_that_is_no_address_is_a_stranger(hf: Holdfast, headers: dict[str, str]) -> None:
    """Not an error of ours."""
    async with client(served(hf), base="http://localhost") as browser:
        answer = await browser.post("/api/session", json={"key": await key_of(hf, "viewer")}, headers=headers)
    assert answer.status_code in (200, 403) and ("Origin" not in headers or answer.status_code == 403)
