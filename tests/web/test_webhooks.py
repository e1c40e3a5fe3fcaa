"""Webhooks over HTTP: managed by admins, and taken in from others only signed, once, and committed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from standardwebhooks.webhooks import Webhook
from starlette.requests import Request
from starlette.responses import Response

from holdfast import Holdfast
from holdfast.errors import ConfigError
from holdfast.web.inbound import receive
from holdfast.webhooks.signing import headers_of, new_secret
from tests.support.stand_in import StandIn, stand_in
from tests.support.waiting import until
from tests.web.scene import Scene

SECRETS = [new_secret(), new_secret()]
GITHUB = "It's a secret to everybody"


@pytest.fixture
async def hf(database_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(database_url, webhooks=True, webhook_networks=["127.0.0.0/8"])
    yield app
    await app.aclose()


@pytest.fixture
async def receiver() -> AsyncIterator[StandIn]:
    async with stand_in() as service:
        yield service


@pytest.fixture
def taken(hf: Holdfast) -> list[Any]:
    """What the task of both sources was given."""
    seen: list[Any] = []

    @hf.task
    async def take(body: Any, type: str | None, delivery: str) -> None:
        seen.append((type, delivery, body))

    hf.inbound("billing", secret=SECRETS, task=take, tenant=lambda body: body.get("account"))
    hf.inbound("github", secret=GITHUB, task="take")
    return seen


async def test_an_admin_makes_tests_watches_and_replays_a_webhook(scene: Scene, receiver: StandIn) -> None:
    """The whole life over the API; the secret is shown once, and the receiver can check with it."""
    made = await scene.post("acme admin", "/api/webhooks", {"url": receiver.url, "events": ["invoice.*"]})
    assert made.status_code == 201, made.text
    webhook, secret = made.headers["location"], made.json()["secret"]
    shown = (await scene.get("acme admin", webhook)).json()
    assert (shown["status"], shown["events"], "secret" in shown) == ("ok", ["invoice.*"], False)
    sent = await scene.post("acme admin", f"{webhook}/test")
    assert sent.status_code == 202
    await scene.work()
    (asked,) = receiver.asked
    assert Webhook(secret).verify(asked.body, asked.headers)["type"] == "webhook.test"
    page = (await scene.get("acme admin", f"{webhook}/deliveries?state=completed")).json()
    assert [one["id"] for one in page["items"]] == [sent.json()["id"]] and page["items"][0]["answer"]["status"] == 200
    again = await scene.post("acme admin", f"{webhook}/deliveries/{sent.json()['id']}/replay")
    assert (again.status_code, again.json()["code"]) == (409, "already_completed")
    changed = await scene.call("acme admin", "PATCH", webhook, json={"enabled": False})
    assert changed.json()["status"] == "disabled"
    assert (await scene.post("acme admin", f"{webhook}/test")).json()["code"] == "webhook_disabled"
    assert (await scene.call("acme admin", "DELETE", webhook)).status_code == 204
    assert (await scene.get("acme admin", webhook)).status_code == 404


async def test_a_delivery_is_there_for_its_own_webhook_alone(scene: Scene, receiver: StandIn) -> None:
    """An unknown id, another webhook's delivery and any other job are 404, and nothing is sent or retried."""
    paths = [(await scene.post("acme admin", "/api/webhooks", {"url": receiver.url})).headers["location"] for _ in range(2)]
    theirs = (await scene.post("acme admin", f"{paths[1]}/test")).json()["id"]
    job = await scene.enqueue()
    await scene.work()
    for id in (theirs, job, "0" * 8 + "-0000-7000-8000-" + "0" * 12, "nonsense"):
        shown = await scene.get("acme admin", f"{paths[0]}/deliveries/{id}")
        again = await scene.post("acme admin", f"{paths[0]}/deliveries/{id}/replay")
        assert [(one.status_code, one.json()["code"]) for one in (shown, again)] == [(404, "not_found")] * 2, id
    assert (await scene.hf.get(job)).state == "completed" and len(receiver.asked) == 1


async def test_a_recovery_is_told_once(scene: Scene, receiver: StandIn) -> None:
    """By the first of several deliveries that succeed at once after a failure."""
    id = (await scene.hf.webhooks.set("acme", receiver.url)).webhook.id
    shared = scene.hf.store.shared
    assert await shared("webhook_recovered", id) == []
    await shared("webhook_failed", id, 60.0, "refused")
    assert [len(await shared("webhook_recovered", id)) for _ in range(2)] == [1, 0]


async def test_a_webhook_is_made_once_under_an_idempotency_key_and_its_secret_not_kept(scene: Scene) -> None:
    """The answer that is given again has null in its place."""
    body, once = {"url": "https://example.com/"}, {"Idempotency-Key": "k1"}
    first = await scene.call("acme admin", "POST", "/api/webhooks", json=body, headers=once)
    second = await scene.call("acme admin", "POST", "/api/webhooks", json=body, headers=once)
    assert first.json()["secret"].startswith("whsec_") and second.json()["secret"] is None
    assert first.json()["id"] == second.json()["id"] and len(await scene.hf.webhooks.list()) == 1


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://[::1]/", "ftp://example.com/", "nonsense"])
async def test_addresses_that_may_not_be_called_are_refused(scene: Scene, url: str) -> None:
    """With what is wrong about them, and nothing is stored."""
    answer = await scene.post("acme admin", "/api/webhooks", {"url": url})
    assert (answer.status_code, answer.json()["code"]) == (422, "option_invalid")
    assert await scene.hf.webhooks.list() == []


# -- from others -----------------------------------------------------------------------------------------------------------


async def post(scene: Scene, source: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return await scene.call("nobody", "POST", f"/api/webhooks/in/{source}", content=body, headers=headers)


async def test_a_signed_webhook_is_a_job_before_it_is_answered_and_one_job_only(scene: Scene, taken: list[Any]) -> None:
    """Twenty at once with the same id, by either secret: one job, of the tenant that the body names."""
    body = json.dumps({"type": "invoice.paid", "account": "acme"}).encode()
    now = int(time.time())
    calls = [post(scene, "billing", body, headers_of([SECRETS[n % 2]], "msg_1", now, body)) for n in range(20)]
    answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in answers} == {200, 202}
    assert [answer.status_code for answer in answers].count(202) == 1
    (job_id,) = {answer.json()["job_id"] for answer in answers}
    job = await scene.hf.get(job_id)
    assert (job.tenant, job.enqueued_by) == ("acme", "webhook:billing")
    await scene.work()
    assert taken == [("invoice.paid", "msg_1", {"type": "invoice.paid", "account": "acme"})]


async def test_github_is_understood_by_its_headers(scene: Scene, taken: list[Any]) -> None:
    """Signature, event and delivery; a redelivery is the same job."""
    body = b'{"zen": "Keep it logically awesome."}'
    digest = hmac.new(GITHUB.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "ping", "X-GitHub-Delivery": "d-1"}
    first, again = await post(scene, "github", body, headers), await post(scene, "github", body, headers)
    assert (first.status_code, again.status_code, again.json()["duplicate"]) == (202, 200, True)
    await scene.work()
    assert taken == [("ping", "d-1", json.loads(body))]


async def test_what_is_not_signed_right_writes_nothing(scene: Scene, taken: list[Any]) -> None:
    """Changed, old, unsigned, for another source, or no JSON."""
    body, now = b"{}", int(time.time())
    right = headers_of([SECRETS[0]], "msg_1", now, body)
    other = headers_of([new_secret()], "msg_1", now, body)
    old = headers_of([SECRETS[0]], "msg_1", now - 400, body)
    for given, content, status in (
        (right, b"{} ", 401),
        (other, body, 401),
        (old, body, 401),
        ({}, body, 401),
        ({**right, "webhook-signature": "v1," + base64.b64encode(b"x" * 32).decode()}, body, 401),
        (headers_of([SECRETS[0]], "msg_2", now, b"no json"), b"no json", 422),
    ):
        answer = await post(scene, "billing", content, given)
        assert answer.status_code == status, answer.text
        assert SECRETS[0] not in answer.text
    assert (await post(scene, "unknown", body, right)).status_code == 404
    assert await scene.hf.jobs() == []


async def test_a_delivery_that_was_not_committed_comes_again(scene: Scene, taken: list[Any]) -> None:
    """Where the job is refused the delivery is not remembered, so that the sender's next try is taken."""
    await scene.hf.tenants.set("acme", queue_depth=0)
    body, now = b'{"account": "acme"}', int(time.time())
    headers = headers_of([SECRETS[0]], "msg_1", now, body)
    assert (await post(scene, "billing", body, headers)).status_code == 429
    await scene.hf.tenants.set("acme", queue_depth=10)

    async def taken_now() -> bool:
        """The depth is asked for again after a second."""
        return (await post(scene, "billing", body, headers)).status_code == 202

    await until(taken_now)


async def test_a_route_of_ones_own_takes_them_too(hf: Holdfast, taken: list[Any]) -> None:
    """`receive` in a FastAPI application: the same answers."""
    app = FastAPI()

    @app.post("/hooks")
    async def hooks(request: Request) -> Response:
        return await receive(hf, "billing", request)

    body = b'{"account": "acme"}'
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:
        good = await client.post("/hooks", content=body, headers=headers_of([SECRETS[1]], "msg_9", int(time.time()), body))
        bad = await client.post("/hooks", content=body)
    assert (good.status_code, bad.status_code, bad.json()["code"]) == (202, 401, "signature_invalid")


def test_a_source_that_cannot_work_is_refused_at_start(sqlite_url: str) -> None:
    """No secret, no name, an unknown task or scheme; and its secret is not in what is printed of it."""
    hf = Holdfast(sqlite_url)

    @hf.task
    async def take(body: Any) -> None: ...

    for wrong in ({"secret": []}, {"secret": "short"}, {"scheme": "md5"}):
        with pytest.raises(ConfigError):
            hf.inbound("a", **{"secret": new_secret(), "task": take, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        hf.inbound("No Name", secret=new_secret(), task=take)
    assert SECRETS[0] not in repr(hf.inbound("b", secret=SECRETS[0], task=take))
