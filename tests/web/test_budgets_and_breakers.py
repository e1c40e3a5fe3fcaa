"""Budgets and breakers over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from holdfast import Holdfast, current
from holdfast.roles import Role
from tests.web.test_metrics import Always, client_of, scraped


@pytest.fixture
async def client(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(hf, Always(Role.SERVICE)) as opened:
        yield opened


async def test_a_used_up_budget_is_402_and_says_when_it_opens_again(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """And an override lets the same request through: the refusal was not kept for its Idempotency-Key."""

    @hf.task(budget="ai")
    async def classify() -> None: ...

    await client.put("/api/budgets/ai?tenant=acme", json={"cents": 0})
    job, key = {"task": "classify", "tenant": "acme"}, {"Idempotency-Key": "k"}
    refused = await client.post("/api/jobs", json=job, headers=key)
    assert (refused.status_code, refused.json()["code"]) == (402, "budget_exhausted")
    assert int(refused.headers["Retry-After"]) > 0
    raised = await client.post("/api/budgets/ai/override?tenant=acme", json={"cents": 50, "reason": "launch"})
    assert (raised.json()["cents"], raised.json()["status"]) == (50, "ok")
    assert (await client.post("/api/jobs", json=job, headers=key)).status_code == 202


async def test_budgets_are_listed_page_by_page(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """By organization and kind, whatever characters they are named by."""
    for tenant, kind in (("a/b", "ai"), ("a/b", "maps"), ("ü", "ai")):
        await hf.budgets.set(tenant, kind, cents=5)
    found, cursor = [], None
    while True:
        page = (await client.get("/api/budgets", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        found += [(one["tenant"], one["kind"]) for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [("a/b", "ai"), ("a/b", "maps"), ("ü", "ai")]
    assert (await client.get("/api/budgets?cursor=nonsense")).status_code == 422


async def test_a_breaker_is_opened_and_closed(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """With who did it; a name that cannot be one is refused."""
    opened = (await client.post("/api/breakers/linear/open", json={"reason": "maintenance"})).json()
    assert (opened["state"], opened["reason"]) == ("open", "maintenance")
    assert [one["name"] for one in (await client.get("/api/breakers")).json()["items"]] == ["linear"]
    assert (await client.post("/api/breakers/linear/close")).json()["state"] == "closed"
    assert (await client.post("/api/breakers/a%20b/open", json={})).status_code == 422


async def test_both_are_told_to_prometheus(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """By service and by kind of spending; tenants are no label."""

    @hf.task
    async def work() -> None:
        await current().spend(5, "ai")

    await hf.budgets.set("acme", "ai", cents=5)
    await work.options(tenant="acme").enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    await hf.breakers.open("linear")
    found = await scraped(client)
    assert found["holdfast_breaker_open{service=linear}"] == 1
    assert found["holdfast_budget_spent_cents{kind=ai}"] == 5
    assert found["holdfast_budget_used_up{kind=ai}"] == 1
