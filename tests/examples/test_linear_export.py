"""examples/linear_export: each issue once, told to webhooks and people; updates pass through in order."""

from __future__ import annotations

import time
from types import ModuleType

import httpx
import pytest

from holdfast.webhooks.signing import headers_of
from tests.examples.conftest import Load, ended, quick, work_until
from tests.support.stand_in import CUT, Answer, Asked, StandIn, too_many

ISSUES = [{"id": f"i{number}", "title": f"Issue {number}"} for number in range(12)]


class Tracker:
    """Makes an issue once for each key, and fails often."""

    def __init__(self, service: StandIn) -> None:
        self.made: dict[str, str] = {}
        self.heard: list[Asked] = []
        self.calls = 0
        service.reply = self.answer

    def answer(self, asked: Asked) -> Answer:
        if asked.path == "/hook":
            self.heard.append(asked)
            return Answer()
        self.calls += 1
        if self.calls % 4 == 0:
            return too_many(0)
        remote = self.made.setdefault(asked.headers["idempotency-key"], f"LIN-{len(self.made) + 1}")
        # Every fifth answer is lost after the issue was made.
        return CUT if self.calls % 5 == 0 else Answer(201, {"id": remote})


@pytest.fixture
async def module(load: Load, service: StandIn) -> ModuleType:
    found = load("linear_export", TRACKER_URL=service.url, HOLDFAST_WEBHOOK_NETWORKS="127.0.0.0/8")
    await found.set_up()
    quick(found.export)
    await found.hf.webhooks.set("acme", f"{service.url}/hook")
    return found


async def test_every_issue_is_made_once_and_everybody_is_told(module: ModuleType, service: StandIn) -> None:
    """Through pauses and lost answers; then one message to the webhook and one notification each."""
    tracker = Tracker(service)
    job = await module.export.options(tenant="acme", actor="ana").enqueue(ISSUES, ["ana", "bob"])
    await work_until(module.hf, lambda: ended(module.hf, job.id))
    await work_until(module.hf, lambda: _quiet(module))
    done = await module.hf.get(job.id)
    assert (done.state, done.output) == ("completed", {"exported": 12}), done.error_message
    assert done.progress and "of 12 issues" in str(done.stage)
    assert len(tracker.made) == 12 and tracker.calls > 12
    async with module.hf.transaction() as tx:
        assert len(await tx.fetch("SELECT issue FROM exported_issues")) == 12
    assert [asked.json["type"] for asked in tracker.heard] == ["export.completed"]
    assert len(await module.hf.jobs(task="notify_user", state="completed")) == 2


async def test_an_update_comes_in_and_goes_out_in_order(module: ModuleType, service: StandIn) -> None:
    """By the built-in route, signed; a repeated one is taken once."""
    tracker = Tracker(service)
    await module.keep("acme", "i1", "LIN-1")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(module.hf.asgi()), base_url="http://here") as client:
        for message, state in (("msg_1", "started"), ("msg_2", "review"), ("msg_2", "review"), ("msg_3", "done")):
            body = f'{{"type": "issue.updated", "data": {{"id": "LIN-1", "state": "{state}"}}}}'.encode()
            headers = headers_of([module.TRACKER_SECRET], message, int(time.time()), body)
            answer = await client.post("/api/webhooks/in/linear", content=body, headers=headers)
            assert answer.status_code in (200, 202), answer.text
            await work_until(module.hf, lambda: _quiet(module))
    told = [asked.json["data"] for asked in tracker.heard]
    assert [one["state"] for one in told] == ["started", "review", "done"]
    assert {one["issue"] for one in told} == {"i1"}


async def _quiet(module: ModuleType) -> bool:
    return not await module.hf.jobs(state="queued") and not await module.hf.jobs(state="running")
