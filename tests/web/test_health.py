"""/healthz and /readyz: what a load balancer and a cluster ask."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from holdfast.web.server import make_app
from tests.web.nobody import Nobody


def client_of(hf: Holdfast, address: str = "203.0.113.9") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(hf, Nobody()), client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://jobs.example")


@pytest.mark.case("recovery-ui-5")
async def test_a_server_with_its_database_lives_and_is_ready(hf: Holdfast) -> None:
    """Nobody has to sign in to ask."""
    async with client_of(hf) as client:
        for path in ("/healthz", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


@pytest.mark.case("I15")
async def test_a_server_without_its_database_lives_and_is_not_ready() -> None:
    """The problem has a code, and tells strangers nothing of where the database is."""
    hf = Holdfast("postgresql://someone:hidden@127.0.0.1:1/jobs")
    async with client_of(hf) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
    await hf.aclose()
    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "127.0.0.1" not in answer.text and "someone" not in answer.text


async def test_a_server_on_another_schema_is_not_ready(tmp_path: Path, sqlite_url: str) -> None:
    """Neither before the migration nor on a database that is newer than the program."""
    codes = []
    path = sqlite_url.removeprefix("sqlite:///")
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO holdfast_migrations VALUES ('core', 999, 'later', 0)")
    connection.close()
    for url in (f"sqlite:///{tmp_path / 'none.db'}", sqlite_url):
        hf = Holdfast(url)
        async with client_of(hf) as client:
            answer = await client.get("/readyz")
        await hf.aclose()
        assert answer.status_code == 503
        codes.append(answer.json()["code"])
    assert codes == ["not_migrated", "schema_too_new"]


async def test_a_server_that_goes_down_is_not_ready(hf: Holdfast) -> None:
    """So that no new requests are sent to it."""
    app = make_app(hf, Nobody())
    app.state.web.stopping.set()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://jobs.example") as client:
        answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "stopping")
