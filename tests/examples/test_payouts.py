"""examples/payouts: whatever is repeated or dies, the bank pays once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from tests.examples.conftest import Load, ended, quick, work_until
from tests.support.processes import Processes
from tests.support.stand_in import CUT, HANG, Answer, Asked, StandIn, too_many
from tests.support.waiting import until

PAYOUT = {"account": "acc-1", "cents": 5000}


class Bank:
    """Books each key once and tells of the same booking again, as banks do."""

    def __init__(self, service: StandIn) -> None:
        self.booked: dict[str, Any] = {}
        service.reply = self.answer

    def answer(self, asked: Asked) -> Answer:
        key = asked.headers["idempotency-key"]
        self.booked.setdefault(key, asked.json)
        return Answer(200, {"reference": f"ref-{len(self.booked)}"})


async def rows(hf: Holdfast) -> list[dict[str, Any]]:
    async with hf.transaction() as tx:
        return await tx.fetch("SELECT account, cents, state, reference FROM payouts")


async def post(client: httpx.AsyncClient, key: str | None, body: Any = None) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return await client.post("/payouts", json=body or PAYOUT, headers=headers)


def calling(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://payouts")


@pytest.mark.case("C36")
async def test_twenty_duplicates_at_once_pay_once(load: Load, service: StandIn, database_url: str) -> None:
    """They get the first answer, or are told to ask again; a bank that is busy, breaks and hangs up is asked until it books."""
    bank = Bank(service)
    service.script = [too_many(0), Answer(502), CUT]
    module = load("payouts", BANK_URL=service.url, HOLDFAST_DATABASE_URL=database_url)
    quick(module.transfer)
    await module.set_up()
    async with calling(module.api) as client:
        answers = await asyncio.gather(*(post(client, "pay-1") for _ in range(20)))
        assert {answer.status_code for answer in answers} <= {202, 409}
        again = await post(client, "pay-1")
        assert again.headers["Idempotency-Replayed"] == "true"
        accepted = [answer.json()["payout"] for answer in [*answers, again] if answer.status_code == 202]
        assert len(set(accepted)) == 1
        assert (await post(client, "pay-1", {**PAYOUT, "cents": 1})).status_code == 422
        assert (await post(client, None)).status_code == 400
    await work_until(module.hf, lambda: ended(module.hf, again.json()["job"]))
    assert await rows(module.hf) == [{**PAYOUT, "state": "paid", "reference": "ref-1"}]
    assert list(bank.booked.values()) == [PAYOUT] and len(service.asked) == 4


async def test_a_worker_that_is_killed_after_the_bank_booked_pays_once(
    load: Load, service: StandIn, processes: Processes, sqlite_url: str
) -> None:
    """The bank has the order, its answer never arrives, the worker is killed: the next one is told of the same booking."""
    bank = Bank(service)

    def book_and_hang(asked: Asked) -> Answer:
        bank.answer(asked)
        return HANG

    service.reply = book_and_hang
    short = {"HOLDFAST_DEFAULT_LEASE_SEC": "3", "HOLDFAST_HEARTBEAT_SEC": "1", "HOLDFAST_REAPER_INTERVAL_SEC": "1"}
    module = load("payouts", BANK_URL=service.url, **short)
    await module.set_up()
    async with calling(module.api) as client:
        assert (await post(client, "pay-1")).status_code == 202
    given: Any = {"app": "examples.payouts.app:hf", "database_url": sqlite_url, "env": {"BANK_URL": service.url, **short}}
    first = processes.worker(**given)
    await until(lambda: bank.booked, timeout=40)
    first.kill()
    service.reply = bank.answer
    processes.worker(**given)

    async def paid() -> bool:
        return (await rows(module.hf))[0]["state"] == "paid"

    await until(paid, timeout=60)
    assert list(bank.booked.values()) == [PAYOUT]
    assert len({asked.headers["idempotency-key"] for asked in service.asked}) == 1 and len(service.asked) >= 2
