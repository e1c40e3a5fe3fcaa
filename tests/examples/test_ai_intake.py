"""examples/ai_intake: limited, durable, paid for once, and polled."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.examples.conftest import Load, ended, quick, work_until
from tests.support.stand_in import CUT, Answer, StandIn, too_many

ANA = {"x-user": "ana", "x-org": "acme"}


@pytest.fixture
async def module(load: Load, service: StandIn) -> ModuleType:
    found = load("ai_intake", MODEL_URL=service.url, RL_AI_INTAKE_USER_PER_HOUR="4")
    await found.hf.migrate()
    quick(found.classify, found.close_cycle, found.summarize_run)
    service.reply = lambda asked: Answer(200, {"text": "Bug", "cents": 3})
    return found


def calling(module: ModuleType, who: dict[str, str] = ANA) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(module.api), base_url="http://intake", headers=who)


async def answered(module: ModuleType, client: httpx.AsyncClient, job: str) -> Any:
    await work_until(module.hf, lambda: ended(module.hf, job))
    return (await client.get(f"/results/{job}")).json()


async def test_an_issue_is_classified_although_the_model_fails_in_every_way(module: ModuleType, service: StandIn) -> None:
    """Busy with Retry-After, broken, cut off; then it answers, and the page sees what it said."""
    service.script = [too_many(0), Answer(500), CUT]
    async with calling(module) as client:
        job = (await client.post("/issues", json={"title": "It crashes"})).json()["job"]
        assert (await client.get(f"/results/{job}")).json()["status"] == "queued"
        found = await answered(module, client, job)
    assert (found["status"], found["result"]["label"]) == ("completed", "bug")
    assert len(service.asked) == 4


async def test_the_model_is_paid_once_also_where_a_later_attempt_does_the_rest(module: ModuleType, service: StandIn) -> None:
    """The attempt fails after the answer; the next one uses it."""
    said: list[str] = []

    class Labels(tuple[str, ...]):
        def __contains__(self, label: object) -> bool:
            said.append(str(label))
            if len(said) == 1:
                raise RuntimeError("the attempt dies here")
            return tuple.__contains__(self, label)

    module.LABELS = Labels(module.LABELS)
    async with calling(module) as client:
        job = (await client.post("/issues", json={"title": "It crashes"})).json()["job"]
        found = await answered(module, client, job)
    assert (found["status"], len(service.asked), len(said)) == ("completed", 1, 2)


async def test_a_question_that_the_model_refuses_fails_with_its_reason(module: ModuleType, service: StandIn) -> None:
    """At once: asking again would cost and change nothing."""
    service.reply = lambda asked: Answer(400, b"too long")
    async with calling(module) as client:
        job = (await client.post("/issues", json={"title": "x"})).json()["job"]
        found = await answered(module, client, job)
    assert (found["status"], found["error"], len(service.asked)) == ("failed", "the model refused: too long", 1)


@pytest.mark.case("P9")
async def test_a_user_has_so_many_an_hour_and_sees_his_own_organization_only(module: ModuleType) -> None:
    """The fifth is 429 with the headers; somebody else goes on, and cannot look at the first one's results."""
    async with calling(module) as client:
        asked = [await client.post("/issues", json={"title": str(n)}) for n in range(5)]
    assert [answer.status_code for answer in asked] == [202, 202, 202, 202, 429]
    assert int(asked[4].headers["retry-after"]) > 0 and asked[4].headers["x-ratelimit-remaining"] == "0"
    async with calling(module, {"x-user": "bob", "x-org": "other"}) as client:
        assert (await client.post("/issues", json={"title": "6"})).status_code == 202
        assert (await client.get(f"/results/{asked[0].json()['job']}")).status_code == 404


async def test_cycles_and_runs_are_summed_up_the_same_way(module: ModuleType, service: StandIn) -> None:
    """Asking twice while one is on its way is one job."""
    async with calling(module) as client:
        cycle = {"name": "42", "done": ["login"], "left": ["logout"]}
        first, second = [(await client.post("/cycles/close", json=cycle)).json()["job"] for _ in range(2)]
        assert first == second
        assert (await answered(module, client, first))["result"] == "Bug"
        run = (await module.hf.runs(first))[0].run_id
        job = (await client.post(f"/runs/{run}/summary")).json()["job"]
        assert (await answered(module, client, job))["status"] == "completed"
    assert "the model answered" in service.asked[-1].json["prompt"]


@pytest.mark.case("P10")
async def test_an_organization_that_has_used_up_its_month_is_refused(module: ModuleType, service: StandIn) -> None:
    """What the model charged counts; the next question is 402, and another organization goes on."""
    service.reply = lambda asked: Answer(200, {"text": "Bug", "cents": 9})
    await module.hf.budgets.set("acme", "ai", cents=10)
    async with calling(module) as client:
        job = (await client.post("/issues", json={"title": "It crashes"})).json()["job"]
        assert (await answered(module, client, job))["status"] == "completed"
        job = (await client.post("/issues", json={"title": "Again"})).json()["job"]
        await answered(module, client, job)
        refused = await client.post("/issues", json={"title": "And again"})
    assert (refused.status_code, refused.json()["code"]) == (402, "budget_exhausted")
    async with calling(module, {"x-user": "bob", "x-org": "other"}) as client:
        assert (await client.post("/issues", json={"title": "It crashes"})).status_code == 202
