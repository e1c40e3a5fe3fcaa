"""The recovery endpoint: who may call it, what it answers, and that calling it twice does no harm."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jwt
import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.web.server import make_app
from tests.conformance.scene import insert, start
from tests.web.nobody import Nobody

PATHS = ("/api/internal/recovery", "/api/internal/recovery/extraction-jobs")
KEY = "an-internal-key-0123456789"
CURRENT, NEXT = (f"sig_{name}_{'0123456789abcdef' * 4}" for name in ("current", "next"))
NOTHING = {"requeued": 0, "failed": 0, "orphaned_jobs_found": 0, "machines_started": 0}


@pytest.fixture
async def guarded(database_url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    """An application with all keys that open the endpoint."""
    keys = {"internal_api_key": KEY, "qstash_current_signing_key": CURRENT, "qstash_next_signing_key": NEXT}
    hf = Holdfast(database_url, clock=clock, **keys)
    yield hf
    await hf.aclose()


def client_of(hf: Holdfast) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(make_app(hf, Nobody())), base_url="https://jobs.example")


def signed(key: str = CURRENT, body: bytes = b"", algorithm: str = "HS256", **other: Any) -> dict[str, str]:
    now = int(time.time())
    digest = base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
    claims = {"iss": "Upstash", "sub": f"https://jobs.example{PATHS[0]}", "exp": now + 300, "nbf": now, "body": digest}
    return {"Upstash-Signature": jwt.encode({**claims, **other}, key, algorithm)}


@pytest.mark.case("P1", "recovery-8")
@pytest.mark.parametrize("path", PATHS)
async def test_the_right_key_opens_and_no_other_does(guarded: Holdfast, path: str) -> None:
    """401 without or with a wrong key, and nothing was done then; counts with it."""
    async with client_of(guarded) as client:
        for headers in ({}, {"X-Internal-Api-Key": ""}, {"X-Internal-Api-Key": KEY[:-1]}, {"X-Internal-Api-Key": "\xe9" * 26}):
            answer = await client.post(path, headers={name: value.encode("latin-1") for name, value in headers.items()})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        answer = await client.post(path, headers={"X-Internal-Api-Key": KEY})
    assert (answer.status_code, answer.json()) == (200, NOTHING)


@pytest.mark.case("P1", "recovery-8")
async def test_a_wrong_key_is_throttled_and_the_right_one_passes(database_url: str) -> None:
    """Both come from one address, as they do behind a proxy."""
    hf = Holdfast(database_url, internal_api_key=KEY, api_rate=2)
    async with client_of(hf) as client:
        keys = ("wrong", "wrong", "wrong", KEY)
        answers = [await client.post(PATHS[0], headers={"X-Internal-Api-Key": key}) for key in keys]
    await hf.aclose()
    assert [answer.status_code for answer in answers] == [401, 401, 429, 200]


async def test_without_any_key_set_nobody_may_call(hf: Holdfast) -> None:
    """An empty header is not the missing setting."""
    async with client_of(hf) as client:
        for headers in ({}, {"X-Internal-Api-Key": ""}, {"X-Internal-Api-Key": "None"}, signed()):
            assert (await client.post(PATHS[0], headers=headers)).status_code == 401


async def test_a_signature_by_the_current_or_the_next_key_opens(guarded: Holdfast) -> None:
    """So that keys can be rotated without a gap; the body may be anything that was signed."""
    async with client_of(guarded) as client:
        for key in (CURRENT, NEXT):
            headers = signed(key, b'{"any": "body"}')
            assert (await client.post(PATHS[0], headers=headers, content=b'{"any": "body"}')).json() == NOTHING


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "sig_of_somebody_else_0123456789abcdef"},
        {"body": b"another body"},
        {"sub": "https://jobs.example/api/elsewhere"},
        {"sub": f"https://other.example{PATHS[0]}"},
        {"exp": 1_000_000_000},
        {"nbf": 4_000_000_000},
        {"iss": "somebody"},
        {"algorithm": "HS512"},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
async def test_a_signature_that_is_not_for_this_call_does_not_open(guarded: Holdfast, wrong: dict[str, Any]) -> None:
    """Another key, body, address, time, issuer or algorithm."""
    async with client_of(guarded) as client:
        assert (await client.post(PATHS[0], headers=signed(**wrong))).status_code == 401


async def test_an_unsigned_token_does_not_open(guarded: Holdfast) -> None:
    """`none` is no algorithm, and neither is rubbish."""
    async with client_of(guarded) as client:
        for token in (jwt.encode({"iss": "Upstash"}, None, "none"), "a.b.c", "..", "é".encode("latin-1")):
            assert (await client.post(PATHS[0], headers={"Upstash-Signature": token})).status_code == 401


async def test_the_counts_tell_what_was_done(guarded: Holdfast, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Requeued, given up, and waiting for a worker that is not there; and one line of log."""
    caplog.set_level(logging.INFO, "holdfast")
    store = guarded.store
    await start(store, lease_seconds=10.0)
    await start(store, lease_seconds=10.0)
    await start(store, lease_seconds=10.0, max_attempts=1)
    await insert(store, queue="lonely")
    clock.advance(90)
    async with client_of(guarded) as client:
        first = await client.post(PATHS[0], headers={"X-Internal-Api-Key": KEY})
        second = await client.post(PATHS[0], headers={"X-Internal-Api-Key": KEY})
    assert first.json() == {"requeued": 2, "failed": 1, "orphaned_jobs_found": 1, "machines_started": 0}
    assert second.json() == {"requeued": 0, "failed": 0, "orphaned_jobs_found": 1, "machines_started": 0}
    lines = [record.getMessage() for record in caplog.records if "[RECOVERY]" in record.getMessage()]
    assert lines == [
        "[RECOVERY] Requeued 2 stuck jobs, failed 1 exhausted jobs, started 0 machines for orphaned jobs",
        "[RECOVERY] Requeued 0 stuck jobs, failed 0 exhausted jobs, started 0 machines for orphaned jobs",
    ]


async def test_calls_at_the_same_moment_handle_each_job_once(guarded: Holdfast, clock: ManualClock) -> None:
    """The counts of all calls together are the number of jobs, and each has one event."""
    runs = [await start(guarded.store, lease_seconds=10.0) for _ in range(8)]
    clock.advance(60)
    async with client_of(guarded) as client:
        calls = (client.post(PATHS[0], headers={"X-Internal-Api-Key": KEY}) for _ in range(4))
        answers = [answer.json() for answer in await asyncio.gather(*calls)]
    assert sum(answer["requeued"] for answer in answers) == len(runs)
    for run in runs:
        events = await guarded.events(run.id)
        assert [event.type for event in events] == ["reaper:requeued"]
