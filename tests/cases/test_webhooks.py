"""Outbox and webhooks end to end: real deliveries to a stand-in receiver, on both stores, over hours of moved time."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import Abort, Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, Conflict, InvalidArguments, InvalidOption, NotFound
from tests.support.stand_in import CUT, Answer, StandIn, stand_in, too_many

LOCAL = "127.0.0.0/8"
KEY = "a2" * 21 + "k="


@pytest.fixture
async def hf(database_url: str, clock: ManualClock) -> AsyncIterator[Holdfast]:
    app = Holdfast(database_url, clock=clock, webhooks=True, webhook_networks=[LOCAL], encryption_keys=KEY)

    @app.task(announce=True, max_attempts=1)
    async def work(fail: bool = False) -> str:
        if fail:
            raise Abort("broken", code="broken")
        return "done"

    @app.task
    async def quiet() -> None: ...

    yield app
    await app.aclose()


@pytest.fixture
async def receiver() -> AsyncIterator[StandIn]:
    async with stand_in() as service:
        yield service


async def endpoint(hf: Holdfast, receiver: StandIn, path: str = "/hook", tenant: str = "acme", **options: Any) -> Any:
    return await hf.webhooks.set(tenant, receiver.url + path, **options)


async def work_off(hf: Holdfast) -> None:
    await hf.run_worker(exit_when_idle=0.0, reap=False)


async def test_a_message_arrives_signed_once_and_leaves_no_trace_of_its_secret(
    hf: Holdfast, receiver: StandIn, database_url: str
) -> None:
    """The body is what was sent; what is stored of the secret cannot be used."""
    made = await endpoint(hf, receiver)
    message = await hf.outbox.send("acme", "invoice.paid", {"id": 7})
    await work_off(hf)
    (asked,) = receiver.asked
    at = hf.clock.now()
    assert at is not None and asked.headers["webhook-timestamp"] == str(int(at.timestamp()))
    assert asked.headers["webhook-id"] == message.id
    signed = Webhook(made.secret).sign(message.id, at, asked.body.decode())
    assert asked.headers["webhook-signature"] == signed
    assert (asked.json["type"], asked.json["data"]) == ("invoice.paid", {"id": 7})
    async with hf.transaction() as tx:
        table = "holdfast.webhooks" if tx.store_kind == "postgres" else "holdfast_webhooks"
        (row,) = await tx.fetch(f"SELECT secret FROM {table}")
    assert made.secret not in str(row) and made.secret not in repr(made)
    (delivery,) = await hf.webhooks.deliveries(made.webhook.id, tenant="acme")
    assert (delivery.status, delivery.message, delivery.answer["status"]) == ("completed", message.id, 200)


async def test_a_message_is_sent_if_and_only_if_the_callers_transaction_commits(
    hf: Holdfast, receiver: StandIn, database_url: str
) -> None:
    """On a connection of another driver, in a sync program, and on our own."""
    await endpoint(hf, receiver)
    if database_url.startswith("sqlite"):
        theirs: Any = sqlite3.connect(database_url.removeprefix("sqlite:///"))
    else:
        theirs = psycopg.connect(database_url)
    assert hf.outbox.send_sync("acme", "lost", {}, tx=theirs).deliveries
    theirs.rollback()
    hf.outbox.send_sync("acme", "kept", {}, tx=theirs)
    theirs.commit()
    theirs.close()
    async with hf.transaction() as tx:
        await hf.outbox.send("acme", "ours", {}, tx=tx)
    await work_off(hf)
    assert sorted(asked.json["type"] for asked in receiver.asked) == ["kept", "ours"]


async def test_a_receiver_that_was_down_for_an_hour_gets_every_message_in_order_per_key(
    hf: Holdfast, receiver: StandIn, clock: ManualClock
) -> None:
    """It refuses in every way there is; afterwards each message came through once, always under the same id."""
    await endpoint(hf, receiver)
    down = [Answer(500), CUT, Answer(503), Answer(404), Answer(302, headers={"location": "http://127.0.0.1:1/"})]
    receiver.reply = lambda asked: down[len(receiver.asked) % len(down)]
    sent: dict[str, list[str]] = defaultdict(list)
    for minute in range(60):
        for key in ("a", "b"):
            if minute % 6 == 0:
                sent[key].append((await hf.outbox.send("acme", f"tick.{key}", {"minute": minute}, key=key)).id)
        await work_off(hf)
        clock.advance(60)
    refused = len(receiver.asked)
    assert 4 <= refused <= 60, "an endpoint that is down is not hammered"
    ids_seen = {asked.headers["webhook-id"] for asked in receiver.asked}
    assert ids_seen <= {sent["a"][0], sent["b"][0]}, "those behind the first of their key wait"
    receiver.reply = lambda asked: Answer(204)
    for _ in range(12):
        clock.advance(300)
        await work_off(hf)
    accepted = receiver.asked[refused:]
    for key in ("a", "b"):
        assert [asked.headers["webhook-id"] for asked in accepted if asked.json["type"] == f"tick.{key}"] == sent[key]
    assert (await hf.webhooks.list(tenant="acme"))[0].status == "ok"


async def test_endpoints_do_not_wait_for_each_other(hf: Holdfast, receiver: StandIn) -> None:
    """One refuses, the other has the message all the same; each sees only what it wants, and of its own tenant."""
    await endpoint(hf, receiver, "/bad")
    good = await endpoint(hf, receiver, "/good", events=["invoice.*"])
    await endpoint(hf, receiver, "/other", tenant="other")
    receiver.reply = lambda asked: Answer(500 if asked.path == "/bad" else 200)
    await hf.outbox.send("acme", "invoice.paid", {}, key="k")
    await hf.outbox.send("acme", "user.created", {}, key="k")
    await work_off(hf)
    assert [asked.json["type"] for asked in receiver.asked if asked.path == "/good"] == ["invoice.paid"]
    assert {asked.path for asked in receiver.asked} == {"/bad", "/good"}
    with pytest.raises(NotFound):
        await hf.webhooks.get(good.webhook.id, tenant="other")


async def test_retry_after_is_honoured(hf: Holdfast, receiver: StandIn, clock: ManualClock) -> None:
    """For this message and for all others to the same endpoint."""
    made = await endpoint(hf, receiver)
    receiver.script = [too_many(600)]
    await hf.outbox.send("acme", "one", {})
    await work_off(hf)
    clock.advance(590)
    await hf.outbox.send("acme", "two", {})
    await work_off(hf)
    assert len(receiver.asked) == 1
    clock.advance(12)
    await work_off(hf)
    clock.advance(2)
    await work_off(hf)
    assert sorted(asked.json["type"] for asked in receiver.asked) == ["one", "one", "two"]
    assert {one.status for one in await hf.webhooks.deliveries(made.webhook.id)} == {"completed"}


async def test_an_endpoint_that_fails_for_days_is_disabled_and_its_dead_letters_are_replayed(
    hf: Holdfast, receiver: StandIn, clock: ManualClock
) -> None:
    """The reason is told in the events and on the endpoint; what failed comes after it is enabled, under its old id."""
    made = await endpoint(hf, receiver)
    webhook = made.webhook.id
    receiver.reply = lambda asked: Answer(500, b"whsec_" + b"A" * 40 + b" no")
    message = await hf.outbox.send("acme", "one", {})
    for _ in range(40):
        await work_off(hf)
        clock.advance(hours=4)
        if (await hf.webhooks.get(webhook)).disabled_at:
            break
    shown = await hf.webhooks.get(webhook)
    assert shown.status == "disabled" and "HTTP 500" in str(shown.disabled_reason)
    assert "AAAA" not in str(shown.disabled_reason)
    assert (await hf.events(tenant="acme"))[0].type == "webhook.disabled"
    assert (await hf.outbox.send("acme", "two", {})).deliveries == []
    with pytest.raises(Conflict):
        await hf.webhooks.test(webhook)
    clock.advance(days=2)
    await work_off(hf)
    (dead,) = await hf.webhooks.deliveries(webhook, state="failed")
    assert dead.message == message.id and dead.error_code in ("webhook_failed", "webhook_disabled")
    receiver.asked.clear()
    receiver.reply = lambda asked: Answer()
    await hf.webhooks.enable(webhook, by="ana")
    assert await hf.webhooks.replay(webhook, by="ana") == [dead.id]
    await work_off(hf)
    assert [asked.headers["webhook-id"] for asked in receiver.asked] == [message.id]


async def test_gone_disables_at_once(hf: Holdfast, receiver: StandIn) -> None:
    """410 is how a receiver says so."""
    made = await endpoint(hf, receiver)
    receiver.script = [Answer(410)]
    await hf.outbox.send("acme", "one", {})
    await work_off(hf)
    assert (await hf.webhooks.get(made.webhook.id)).disabled_reason == "it answered 410 Gone"
    assert (await hf.webhooks.deliveries(made.webhook.id))[0].error_code == "webhook_gone"


async def test_redirects_are_not_followed_and_private_addresses_not_called(
    database_url: str, clock: ManualClock, receiver: StandIn
) -> None:
    """Also where the address was stored when its network was still allowed."""
    before = Holdfast(database_url, clock=clock, webhooks=True, webhook_networks=[LOCAL])
    made: Any = await before.webhooks.set("acme", receiver.url)
    receiver.script = [Answer(307, headers={"location": f"{receiver.url}/elsewhere"})]
    await before.outbox.send("acme", "one", {})
    await work_off(before)
    await before.aclose()
    assert [asked.path for asked in receiver.asked] == ["/"]
    clock.advance(days=1)
    after = Holdfast(database_url, clock=clock, webhooks=True)
    await work_off(after)
    assert len(receiver.asked) == 1
    (delivery,) = await after.webhooks.deliveries(made.webhook.id)
    assert (delivery.status, delivery.error_code) == ("failed", "webhook_target_refused")
    await after.aclose()


async def test_a_large_answer_is_cut_and_kept_without_secrets(hf: Holdfast, receiver: StandIn) -> None:
    """Nobody can fill the database with what he answers."""
    made = await endpoint(hf, receiver)
    receiver.script = [Answer(200, b"token ghp_" + b"a" * 36 + b" " + b"x" * 5_000_000)]
    await hf.outbox.send("acme", "one", {})
    await work_off(hf)
    (delivery,) = await hf.webhooks.deliveries(made.webhook.id)
    assert len(delivery.answer["answer"]) <= 2048 and "ghp_" not in delivery.answer["answer"]


async def test_a_secret_is_rotated_without_a_gap(hf: Holdfast, receiver: StandIn, clock: ManualClock) -> None:
    """For a day both secrets sign, then the new one alone."""
    first = await endpoint(hf, receiver)
    second = await hf.webhooks.rotate(first.webhook.id, tenant="acme")
    for _ in range(2):
        await hf.outbox.send("acme", "one", {})
        await work_off(hf)
        clock.advance(days=2)
    now, then = (asked.headers["webhook-signature"].split() for asked in receiver.asked)
    assert (len(now), len(then)) == (2, 1) and first.secret != second.secret


async def test_the_end_of_an_announced_job_is_told_once_whoever_ends_it(
    hf: Holdfast, receiver: StandIn, clock: ManualClock
) -> None:
    """Completed, failed, cancelled in the queue, and again after a manual retry; jobs of other tasks tell nothing."""
    await endpoint(hf, receiver, events=["job.*"])
    good = await hf.enqueue("work", tenant="acme")
    bad = await hf.enqueue("work", {"fail": True}, tenant="acme")
    await hf.enqueue("work", tenant="without webhooks")
    await hf.enqueue("quiet", tenant="acme")
    late = await hf.enqueue("work", tenant="acme", delay=1000)
    await hf.cancel(late.id)
    await work_off(hf)
    assert {(asked.json["type"], asked.json["data"]["id"]) for asked in receiver.asked} == {
        ("job.completed", good.id),
        ("job.failed", bad.id),
        ("job.cancelled", late.id),
    }
    await work_off(hf)
    assert len(receiver.asked) == 3
    await hf.retry(bad.id)
    await work_off(hf)
    (again,) = receiver.asked[3:]
    assert (again.json["data"]["error_code"], again.json["data"]["run_no"]) == ("broken", 2)


async def test_what_cannot_be_sent_is_refused_and_nothing_is_written(hf: Holdfast, receiver: StandIn, sqlite_url: str) -> None:
    """Types, keys, data, addresses, filters; and an app that does not deliver."""
    await endpoint(hf, receiver)
    for arguments, error in (
        (("acme", "no type!", {}), InvalidOption),
        (("", "a.b", {}), InvalidOption),
        (("acme", "a.b", {"x": object()}), InvalidArguments),
        (("acme", "a.b", {"x": float("nan")}), InvalidArguments),
    ):
        with pytest.raises(error):
            await hf.outbox.send(*arguments)
    with pytest.raises(InvalidOption):
        await hf.outbox.send("acme", "a.b", {}, key="")
    for wrong in ({"url": "https://10.0.0.1/"}, {"events": []}, {"events": ["a b"]}, {"secret": "short"}):
        with pytest.raises(InvalidOption):
            await hf.webhooks.set("acme", **{"url": receiver.url, **wrong})
    assert len(await hf.webhooks.list()) == 1 and await hf.jobs(task="holdfast:deliver") == []
    off = Holdfast(sqlite_url)
    with pytest.raises(ConfigError, match="HOLDFAST_WEBHOOKS"):
        await off.outbox.send("acme", "a.b", {})
    assert off.worker()._queues == ["default"]
    await off.aclose()
