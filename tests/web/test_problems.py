"""Errors as problem+json, limits of size and time, headers, and what a caller is not told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from holdfast import Holdfast
from holdfast.errors import StorageUnavailable
from holdfast.web import problems
from tests.web.scene import Scene

PROBLEM = {"type", "title", "status", "detail", "code"}


def is_problem(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert found.keys() >= PROBLEM
    assert (answer.status_code, found["status"], found["code"]) == (status, status, code), answer.text


async def test_what_the_framework_refuses_is_a_problem_too(scene: Scene) -> None:
    """Unknown addresses, methods, and bodies that are no JSON."""
    key = "acme member"
    is_problem(await scene.get(key, "/nothing"), 404, "not_found")
    answer = await scene.call(key, "PUT", "/api/jobs")
    is_problem(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]
    as_json = {"content-type": "application/json"}
    for body in ("{", '{"task": NaN}x'):
        is_problem(await scene.call(key, "POST", "/api/jobs", content=body.encode(), headers=as_json), 400, "json_invalid")
    for body in (b"\xff\xfe{", b'{"task": "\xc3"}', b"[" * 100_000, b"9" * 5000):
        is_problem(await scene.call(key, "POST", "/api/jobs/cancel", content=body, headers=as_json), 400, "body_unreadable")
    for body in (b"\xff\xfe{", b'{"task": "\xc3"}', b"[" * 100_000):
        is_problem(await scene.call(key, "POST", "/api/jobs", content=body, headers=as_json), 400, "json_invalid")
    as_text = {"content-type": "text/plain"}
    is_problem(await scene.call(key, "POST", "/api/jobs", content=b"{}", headers=as_text), 422, "request_invalid")


async def test_who_is_unknown_is_told_so_before_his_body_is_read(scene: Scene) -> None:
    """401 with what to send, whatever the body."""
    answer = await scene.call("nobody", "POST", "/api/jobs", content=b"{", headers={"content-type": "application/json"})
    is_problem(answer, 401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_beyond_the_limit_is_413(scene: Scene, announced: bool) -> None:
    """Whether its length is announced or not, and nothing is queued."""
    large = json.dumps({"task": "add", "args": {"a": 1, "x": "y" * 1_200_000}}).encode()

    async def pieces() -> Any:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    content = large if announced else pieces()
    answer = await scene.call("acme member", "POST", "/api/jobs", content=content, headers={"content-type": "application/json"})
    is_problem(answer, 413, "body_too_large")


async def test_arguments_beyond_the_limit_are_413(hf: Holdfast) -> None:
    """Which may be smaller than the body's."""
    scene = Scene(Holdfast(hf.settings.database_url, payload_bytes_max=100))
    answer = await scene.post("service", "/api/jobs", {"task": "erase", "args": {"what": "x" * 200}})
    is_problem(answer, 413, "payload_too_large")
    await scene.hf.aclose()


@pytest.mark.parametrize("cursor", ["x", "0", "%00", "' OR 1=1", "é", "9" * 99])
async def test_a_bad_cursor_is_422(scene: Scene, cursor: str) -> None:
    """For every list of jobs."""
    for path in ("/api/jobs", "/api/dead"):
        is_problem(await scene.get("acme viewer", path, params={"cursor": cursor}), 422, "option_invalid")


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "state=sleeping", "after=yesterday", "queue="])
async def test_a_bad_question_is_422_and_names_the_parameter(scene: Scene, query: str) -> None:
    """With where and what."""
    answer = await scene.get("acme viewer", f"/api/jobs?{query}")
    is_problem(answer, 422, "request_invalid")
    assert answer.json()["errors"][0]["where"] == f"query.{query.split('=')[0]}"


async def test_a_name_with_nul_is_422(scene: Scene) -> None:
    """In a filter, an address or a body."""
    for method, path, body in (
        ("GET", "/api/jobs?queue=a%00b", None),
        ("GET", "/api/tenants/a%00b", None),
        ("POST", "/api/queues/a%00b/pause", None),
        ("POST", "/api/jobs", {"task": "add", "args": {"a": 1}, "unique": "a\x00b"}),
        ("POST", "/api/jobs/cancel", {"where": {"task": "a\x00b"}}),
    ):
        answer = await scene.call("service", method, path, json=body)
        assert answer.status_code == 422, (path, answer.text)


def broken_scene(hf: Holdfast, **settings: Any) -> Scene:
    """An application whose own routes fail, are slow, or cannot reach their database."""
    router = APIRouter()

    @router.get("/broken")
    async def fails() -> None:
        raise RuntimeError("password=hunter2")

    @router.get("/slow")
    async def hangs() -> None:
        await asyncio.Event().wait()

    @router.get("/away")
    async def away() -> None:
        raise StorageUnavailable("The database at postgresql://me@10.0.0.7/db cannot be reached.")

    made = Holdfast(hf.settings.database_url, **settings)
    made.extend("broken", routers=[router])
    return Scene(made)


@pytest.fixture
async def broken(hf: Holdfast) -> AsyncIterator[Scene]:
    scene = broken_scene(hf)
    yield scene
    await scene.hf.aclose()


async def test_an_error_of_ours_tells_the_caller_only_its_number(broken: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """The rest is in the log, under the same number."""
    with caplog.at_level(logging.INFO, "holdfast.web"):
        answer = await broken.get("service", "/api/broken", headers={"X-Request-Id": "abc-1"})
    is_problem(answer, 500, "internal_error")
    assert (answer.json()["request_id"], answer.headers["x-request-id"]) == ("abc-1", "abc-1")
    assert "hunter2" not in answer.text and "Traceback" not in answer.text
    assert [getattr(record, "request_id", None) for record in caplog.records if record.exc_info] == ["abc-1"]


async def test_an_answer_has_its_time(hf: Holdfast) -> None:
    """503 once it is over."""
    impatient = broken_scene(hf, request_limit=0.05)
    is_problem(await impatient.get("service", "/api/slow"), 503, "request_timeout")
    await impatient.hf.aclose()


async def test_a_database_that_is_away_is_502_and_its_place_stays_hidden(broken: Scene) -> None:
    """The log of the server knows it."""
    answer = await broken.get("service", "/api/away")
    is_problem(answer, 502, "storage_unavailable")
    assert "10.0.0.7" not in answer.text


async def test_every_answer_has_security_headers_and_a_request_id(scene: Scene) -> None:
    """Also errors; an id that could break a log is replaced; and no other site is let in."""
    for path in ("/api/jobs", "/healthz", "/nothing"):
        answer = await scene.get("acme viewer", path, headers={"X-Request-Id": "a b\tc", "Origin": "https://evil.example"})
        found = {name: answer.headers.get(name) for name in ("x-content-type-options", "x-frame-options", "referrer-policy")}
        assert found == {"x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer"}
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert len(answer.headers["x-request-id"]) == 32
        assert "access-control-allow-origin" not in answer.headers


async def test_a_stranger_who_keeps_trying_is_no_longer_listened_to(hf: Holdfast) -> None:
    """429 after so many failed attempts with one key; a caller with a valid key at the same address is not touched."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=3))
    wrong = {"Authorization": "Bearer hf_" + "x" * 43}
    statuses = [(await scene.get("nobody", "/api/jobs", headers=wrong)).status_code for _ in range(4)]
    assert statuses == [401, 401, 401, 429]
    assert (await scene.get("acme viewer", "/api/jobs")).status_code == 200
    await scene.hf.aclose()


@pytest.mark.case("P9")
async def test_a_caller_who_asks_too_often_is_told_when_to_come_back(hf: Holdfast) -> None:
    """429 with Retry-After and the limit's headers."""
    scene = Scene(Holdfast(hf.settings.database_url, api_rate=2))
    answers = [await scene.get("acme viewer", "/api/jobs") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-limit"] == "2"
    assert int(answers[2].headers["retry-after"]) >= 1
    await scene.hf.aclose()


def test_every_error_that_a_caller_can_meet_has_a_status() -> None:
    """A new error is given one on purpose, or is none of the caller's business."""
    from holdfast import errors

    ours = {
        "ConfigError",
        "HoldfastError",
        "StorageError",
        "LeaseLost",
        "JobFailed",
        "JobCancelled",
        "ResultTimeout",
        "ResultTooLarge",
        "SealedUnreadable",
        "TargetRefused",
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HoldfastError)]
    without = {kind.__name__ for kind in kinds if not set(kind.__mro__) & problems.STATUSES.keys()}
    assert without == ours


async def test_a_body_of_very_many_unknown_fields_is_one_error(scene: Scene) -> None:
    """An error for each of them would hold up the event loop for half a second."""
    body = {f"k{number}": 1 for number in range(80_000)}
    for path in ("/api/jobs", "/api/jobs/cancel"):
        answer = await scene.post("acme admin", path, body)
        is_problem(answer, 422, "request_invalid")
        assert len(answer.json()["errors"]) == 1
        assert "Too many fields" in answer.json()["detail"]


@pytest.mark.parametrize(
    "what", [{f"k{number}": 1 for number in range(40_000)}, [{"k": [1]}] * 40_000], ids=["keys", "objects"]
)
async def test_arguments_may_have_as_many_parts_as_their_bytes_allow(scene: Scene, what: object) -> None:
    """They are the program's own data; only their size is limited."""

    @scene.hf.task(expose="admin")
    async def keep(what: Any) -> None: ...

    answer = await scene.post("acme admin", "/api/jobs", {"task": "keep", "args": {"what": what}})
    assert answer.status_code == 202, answer.text
