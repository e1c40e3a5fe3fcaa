"""Rate limits over HTTP: on the user's own endpoints, and on the API itself."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
from fastapi import Depends, FastAPI, Request

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import RateLimited
from holdfast.web.problems import handle_errors
from holdfast.web.ratelimit import CallerRate, TokenBuckets, network_of, rate_limit


@pytest.mark.case("P9", "requests-3")
@pytest.mark.parametrize("ours", [False, True])
async def test_a_hit_is_429_with_its_headers_and_clears_after_the_window(
    hf_at: Holdfast, clock: ManualClock, ours: bool
) -> None:
    """In any application of FastAPI; where problems are handled it is one of them."""
    hf_at.limit("ai_intake", user=2, tenant=5, per=3600)

    async def who(request: Request) -> dict[str, str | None]:
        return {"user": request.headers["user"], "tenant": "acme"}

    app = FastAPI()
    if ours:
        handle_errors(app)

    @app.post("/intake", dependencies=[Depends(rate_limit(hf_at, "ai_intake", who))])
    async def intake() -> str:
        return "taken"

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        answers = [await client.post("/intake", headers={"user": "ana"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["1", "0", "0"]
        refused = answers[2]
        assert (refused.headers["retry-after"], refused.headers["x-ratelimit-limit"]) == ("3600", "2")
        assert abs(int(refused.headers["x-ratelimit-reset"]) - time.time() - 3600) < 60
        assert "try again in 3600 s" in refused.json()["detail"]
        assert refused.json().get("code") == ("rate_limited" if ours else None)
        clock.advance(3601)
        assert (await client.post("/intake", headers={"user": "ana"})).status_code == 200


async def test_callers_of_the_api_have_a_limit_of_their_own(database_url: str, clock: ManualClock) -> None:
    """Counted in the database for each caller; 0 turns it off."""
    hf = Holdfast(database_url, clock=clock, api_rate=2)
    callers = CallerRate(hf)
    try:
        for _ in range(2):
            assert await callers.take("key:ab12") is not None
        with pytest.raises(RateLimited, match="try again in 30 s"):
            await callers.take("key:ab12")
        assert await callers.take("key:cd34") is not None
    finally:
        await hf.aclose()
    assert await CallerRate(Holdfast("sqlite:///:memory:", api_rate=0)).take("key:ab12") is None


async def test_the_database_counts_requests_to_the_api_in_blocks(database_url: str, clock: ManualClock) -> None:
    """The limit and what remains are told by the request; all of it together is the rate, and not one more."""
    hf = Holdfast(database_url, clock=clock, api_rate=600)
    callers = CallerRate(hf)
    try:
        taken = [await callers.take("key:ab12") for _ in range(25)]
        assert [(one.limit, one.remaining) for one in taken if one] == [(600, 600 - n) for n in range(1, 26)]
        (row,) = await hf.store.shared("rate_look", "api", "user:key:ab12")
        assert row["used"] == 3
        await asyncio.gather(*(callers.take("key:ab12") for _ in range(100)))
        for _ in range(475):
            await callers.take("key:ab12")
        with pytest.raises(RateLimited):
            await callers.take("key:ab12")
    finally:
        await hf.aclose()


def test_addresses_of_one_network_count_as_one() -> None:
    """With IPv6 anybody has more addresses than could be counted; with IPv4 each one counts."""
    alike = ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:0:abcd::"]
    assert len({network_of(address) for address in alike}) == 1
    apart = ["2001:db8:0:1::1", "192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "testclient", ""]
    assert len({network_of(address) for address in [*alike, *apart]}) == 1 + len(apart)


def test_an_address_gets_its_tokens_back_in_time() -> None:
    """So many a minute, never more than a minute's worth; those not seen for long are forgotten."""
    now = 0.0
    buckets = TokenBuckets(60, lambda: now)
    assert [buckets.take("a") for _ in range(61)] == [0.0] * 60 + [1.0]
    now = 1.0
    assert (buckets.take("a"), buckets.take("a")) == (0.0, 1.0)
    now = 1000.0
    assert sum(buckets.take("a") == 0 for _ in range(100)) == 60
    for number in range(10_001):
        buckets.take(str(number))
    assert buckets.take("a") == 0.0
