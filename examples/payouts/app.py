"""Payouts that never pay twice: the request's Idempotency-Key, the ledger and the job are one transaction.

uvicorn examples.payouts.app:api
holdfast --app examples.payouts.app:hf worker
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from holdfast import Abort, Holdfast, RetryLater, current
from holdfast.web.idempotent import once_in_transaction
from holdfast.web.problems import handle_errors

BANK = os.environ.get("BANK_URL", "http://127.0.0.1:9001")
TABLE = """CREATE TABLE IF NOT EXISTS payouts (
    id text PRIMARY KEY, account text NOT NULL, cents bigint NOT NULL, state text NOT NULL, reference text)"""

hf = Holdfast()  # HOLDFAST_DATABASE_URL


async def set_up() -> None:
    await hf.migrate()
    async with hf.transaction() as tx:
        await tx.execute(TABLE)


# -- 1. the request: a payout is accepted once, whatever the client repeats --------------------------------------------


class Payout(BaseModel):
    account: str = Field(min_length=1, max_length=100)
    cents: int = Field(gt=0)


@asynccontextmanager
async def life(app: FastAPI) -> AsyncIterator[None]:
    await set_up()
    yield
    await hf.aclose()


api = FastAPI(lifespan=life)
handle_errors(api)  # a key that is missing: 400, used for another request: 422, in progress: 409 with Retry-After


@api.post("/payouts", status_code=202)
async def pay_out(request: Request, payout: Payout) -> Response:
    async def work(tx: object) -> Response:
        payout_id = uuid.uuid4().hex
        await tx.execute(  # type: ignore[attr-defined]
            "INSERT INTO payouts (id, account, cents, state) VALUES ($1, $2, $3, 'pending')",
            payout_id, payout.account, payout.cents,
        )  # fmt: skip
        job = await transfer.options(order=payout.account, tx=tx).enqueue(payout_id)
        return JSONResponse({"payout": payout_id, "job": job.id}, 202)

    client = request.headers.get("x-client", "anybody")  # your own login says who this is
    return await once_in_transaction(hf, request, work, tenant=None, caller=client, required=True)


# -- 2. the job: the bank is asked as often as it takes, always under the same key ----------------------------------------


@hf.task(queue="payouts", max_attempts=10, backoff=(1, 5, 30, 300), timeout=60)
async def transfer(payout_id: str) -> None:
    async with hf.transaction() as tx:
        (row,) = await tx.fetch("SELECT account, cents FROM payouts WHERE id = $1", payout_id)
    async with httpx.AsyncClient(timeout=20) as bank:
        answer = await bank.post(f"{BANK}/transfers", json=row, headers={"Idempotency-Key": current().idempotency_token})
    if answer.status_code == 429:
        raise RetryLater(float(answer.headers.get("retry-after", 5)), "the bank is busy", code="bank_busy")
    if 400 <= answer.status_code < 500:
        raise Abort(f"the bank refused: {answer.text[:200]}", code="bank_refused")
    answer.raise_for_status()
    async with hf.transaction() as tx:  # the ledger and the job's end: both, or neither
        await tx.execute(
            "UPDATE payouts SET state = 'paid', reference = $2 WHERE id = $1", payout_id, answer.json()["reference"]
        )
        await current().complete(tx=tx)
