"""`holdfast server` behind a proxy: whose address counts, and whether the browser spoke TLS."""

from __future__ import annotations

import httpx
import pytest

from holdfast import Holdfast
from tests.processes.test_server import APP, address_of
from tests.support.processes import Processes
from tests.web.people import key_of

WRONG = {"Authorization": "Bearer hf_" + "x" * 43}
ANA, BEN = {"X-Forwarded-For": "203.0.113.7"}, {"X-Forwarded-For": "203.0.113.8"}


@pytest.mark.parametrize(
    ("options", "environment", "counted_apart"),
    [
        ([], {}, True),
        ([], {"FORWARDED_ALLOW_IPS": "192.0.2.1"}, False),
        (["--forwarded-allow-ips", "192.0.2.0/24, 127.0.0.0/8"], {"FORWARDED_ALLOW_IPS": "192.0.2.1"}, True),
        (["--forwarded-allow-ips", ""], {}, False),
    ],
    ids=["this machine", "another by environment", "networks", "none"],
)
async def test_only_a_trusted_proxy_names_the_clients_address(
    hf: Holdfast,
    database_url: str,
    processes: Processes,
    options: list[str],
    environment: dict[str, str],
    counted_apart: bool,
) -> None:
    """What it forwards is counted by the client; from anywhere else the header is the client's own claim."""
    await key_of(hf, "viewer")
    server = processes.holdfast(
        "server", "--port", "0", *options, app=APP, database_url=database_url, env={"HOLDFAST_API_RATE": "2", **environment}
    )
    async with httpx.AsyncClient(base_url=await address_of(server), headers=WRONG, timeout=60) as clients:
        codes = [(await clients.get("/api/jobs", headers=who)).status_code for who in (ANA, ANA, ANA, BEN)]
    assert codes == [401, 401, 429, 401 if counted_apart else 429]


async def test_a_login_through_a_proxy_on_this_machine_has_a_secure_cookie(
    hf: Holdfast, database_url: str, processes: Processes
) -> None:
    """With the headers that proxies send, and with a proxy that sends none and rewrites the Host."""
    key = await key_of(hf, "viewer")
    server = processes.holdfast("server", "--port", "0", app=APP, database_url=database_url)
    forwarding = {"Host": "jobs.example.com", "X-Forwarded-Proto": "https", "Origin": "https://jobs.example.com"}
    silent = {"Origin": "https://jobs.example.com", "Sec-Fetch-Site": "same-origin"}
    direct = {"Sec-Fetch-Site": "same-origin"}
    async with httpx.AsyncClient(base_url=await address_of(server), timeout=60) as browser:
        logins = [await browser.post("/login", data={"key": key}, headers=sent) for sent in (forwarding, silent, direct)]
    cookies = [login.headers["set-cookie"] for login in logins]
    assert [login.status_code for login in logins] == [303] * 3
    assert ["; Secure" in cookie for cookie in cookies] == [True, True, False]
