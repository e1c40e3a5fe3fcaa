"""Strings that were written to break something, through the API."""

from __future__ import annotations

import pytest

from tests.cases.test_hostile_strings import SHORT, STRINGS
from tests.web.scene import Scene


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", STRINGS)
async def test_hostile_text_is_json_and_nothing_else(scene: Scene, what: str) -> None:
    """It comes back as it went in, from every field; as data that no browser takes for a page."""
    text = STRINGS[what]
    body = {"task": "erase", "args": {"what": text}, "project": text, "unique": text, "order": text, "meta": {text: text}}
    answer = await scene.post("acme admin", "/api/jobs", {**body, "tags": [text[:SHORT]]})
    assert answer.status_code == 202, answer.text
    found = await scene.get("acme admin", "/api/jobs", params={"tag": text[:SHORT], "project": text})
    (job,) = found.json()["items"]
    assert (job["args"], job["project"], job["tags"], job["meta"]) == ({"what": text}, text, [text[:SHORT]], {text: text})
    assert (job["unique_key"], job["order_key"]) == (text, text)
    assert (found.headers["content-type"], found.headers["x-content-type-options"]) == ("application/json", "nosniff")


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", [*STRINGS, "nul", "long", "half"])
async def test_hostile_text_where_a_name_belongs_is_refused_or_not_found(scene: Scene, what: str) -> None:
    """In addresses, filters, cursors, keys and headers: never a 5xx, and nothing is changed."""
    text = {**STRINGS, "nul": "a\0b", "long": "x" * 5000, "half": "\ud83d"}[what]
    await scene.enqueue()
    quoted = text.encode(errors="surrogatepass").hex("%")
    quoted = f"%{quoted}"
    calls = [
        ("GET", f"/api/jobs/{quoted}"),
        ("DELETE", f"/api/jobs/{quoted}"),
        ("POST", f"/api/jobs/{quoted}/retry"),
        ("GET", f"/api/jobs/{quoted}/runs/1/logs/stream"),
        ("GET", f"/api/tenants/{quoted}"),
        *[
            ("GET", f"/api/jobs?{name}={quoted}")
            for name in ("state", "queue", "task", "tag", "project", "tenant", "after", "cursor")
        ],
    ]
    statuses = {call: (await scene.call("acme admin", *call)).status_code for call in calls}
    assert {call: status for call, status in statuses.items() if status not in (200, 404, 422)} == {}
    with_header = await scene.call(
        "acme admin", "GET", "/api/jobs", headers=[(b"x-request-id", text.encode(errors="replace").replace(b"\0", b"?")[:200])]
    )
    assert with_header.status_code == 200 and "\n" not in with_header.headers["x-request-id"]
    assert (await scene.hf.store.job_counts())["queued"] == 1


@pytest.mark.case("D38")
async def test_half_a_character_in_a_body_is_refused(scene: Scene) -> None:
    """JSON can spell what no database stores; it is told so, in words that can be sent."""
    for raw in (
        rb'{"task": "erase", "args": {"what": "\ud83d"}}',
        rb'{"task": "\ud83d", "args": {}}',
        rb'{"task": "erase", "\ud83d": 1}',
    ):
        answer = await scene.call("acme admin", "POST", "/api/jobs", content=raw, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), answer.text
    bulk = await scene.call(
        "acme admin",
        "POST",
        "/api/jobs/cancel",
        content=rb'{"where": {"task": "\ud83d"}}',
        headers={"content-type": "application/json"},
    )
    assert bulk.status_code == 422
