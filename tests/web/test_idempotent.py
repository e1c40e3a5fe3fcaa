"""Idempotency-Key on the user's own endpoints, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.store.protocol import Transaction
from holdfast.web.idempotent import idempotent, idempotent_route, once_in_transaction
from holdfast.web.problems import handle_errors
from tests.support.waiting import until


class Shop:
    """An application of the user's: what it did, and a client of it."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.done: list[Any] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.waiting = False
        self.app = FastAPI()
        handle_errors(self.app)
        self.app.include_router(self._routes())
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://shop")

    def who(self, request: Request) -> tuple[str | None, str]:
        if "user" not in request.headers:
            raise HTTPException(401)
        return "acme", request.headers["user"]

    def _routes(self) -> APIRouter:
        router = APIRouter(route_class=idempotent_route(self.hf, who=self.who, hide=("secret",)))

        @router.post("/orders", status_code=201)
        async def order(body: dict[str, Any], response: Response) -> dict[str, Any]:
            self.waiting = True
            await self.may_go_on.wait()
            self.done.append(body)
            response.headers["Location"] = f"/orders/{len(self.done)}"
            response.set_cookie("session", "of the first caller")
            return {"order": len(self.done), "secret": "only now", "body": body}

        @router.post("/answers/{status}")
        async def answer(status: int) -> Response:
            self.done.append(status)
            return JSONResponse({"status": status, "no": len(self.done)}, status)

        @router.post("/bytes")
        async def stream() -> Response:
            self.done.append("bytes")
            return StreamingResponse(iter([b"\xff\x00", b"\xfe"]), media_type="application/octet-stream")

        @self.app.post("/jobs")
        async def enqueue(request: Request) -> Response:
            async def work(tx: Transaction | None) -> Response:
                job = await self.hf.enqueue("send", tx=tx)
                if "fail" in request.headers:
                    raise HTTPException(503)
                return JSONResponse({"job": job.id}, 202)

            return await once_in_transaction(self.hf, request, work, tenant="acme", caller="ana", required=True)

        return router

    async def post(self, path: str, key: str | None = "k", user: str = "ana", **request: Any) -> httpx.Response:
        headers = {"user": user, **request.pop("headers", {}), **({} if key is None else {"Idempotency-Key": key})}
        return await self.client.post(path, headers=headers, **request)


@pytest.fixture
async def shop(hf: Holdfast) -> AsyncIterator[Shop]:
    @hf.task
    async def send() -> None: ...

    shop = Shop(hf)
    async with shop.client:
        yield shop


@pytest.mark.case("requests-1")
async def test_the_same_request_gets_the_same_response(shop: Shop) -> None:
    """Status, body and headers, and the work was done once; a header tells that it is a repetition."""
    first, again = [await shop.post("/orders", json={"n": 1}) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == {**first.json(), "secret": None}
    assert (again.headers["location"], again.headers["content-type"]) == ("/orders/1", "application/json")
    assert (again.headers["idempotency-replayed"], "idempotency-replayed" in first.headers) == ("true", False)
    assert shop.done == [{"n": 1}]


async def test_a_secret_is_shown_once_and_not_kept(shop: Shop, database_url: str) -> None:
    """What is hidden is not in the database at all, and cookies of the first caller are not handed on."""
    assert (await shop.post("/orders", json={})).json()["secret"] == "only now"
    table = "holdfast.idempotency_keys" if shop.hf.store.name == "postgres" else "holdfast_idempotency_keys"
    async with shop.hf.transaction() as tx:
        rows = await tx.fetch(f"SELECT * FROM {table}")
    assert len(rows) == 1
    assert "only now" not in str(rows) and "of the first caller" not in str(rows)


async def test_another_body_under_the_same_key_is_422(shop: Shop) -> None:
    """As a problem with its code; also another query."""
    await shop.post("/orders", json={"n": 1})
    for other in ({"json": {"n": 2}}, {"json": {"n": 1}, "params": {"x": 1}}):
        refused = await shop.post("/orders", **other)
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert len(shop.done) == 1


async def test_keys_count_per_caller_and_route(shop: Shop) -> None:
    """Nobody gets the answer to somebody else's request, and without an identity nobody gets any."""
    await shop.post("/orders", json={"n": 1})
    assert (await shop.post("/orders", user="bob", json={"n": 1})).json()["order"] == 2
    assert (await shop.post("/answers/200")).json()["no"] == 3
    stranger = await shop.client.post("/orders", headers={"Idempotency-Key": "k"}, json={"n": 1})
    assert stranger.status_code == 401


async def test_a_second_request_meanwhile_is_409_and_replays_afterwards(shop: Shop) -> None:
    """It says when to come again."""
    shop.may_go_on.clear()
    first = asyncio.create_task(shop.post("/orders", json={}))
    await until(lambda: shop.waiting)
    told = await asyncio.wait_for(shop.post("/orders", json={}), 40)
    assert told.status_code == 409
    assert (told.json()["code"], told.headers["retry-after"]) == ("idempotency_in_progress", "1")
    shop.may_go_on.set()
    assert (await first).status_code == 201
    assert (await shop.post("/orders", json={})).json()["order"] == 1
    assert len(shop.done) == 1


@pytest.mark.parametrize(("status", "times"), [(200, 1), (404, 1), (429, 2), (500, 2), (503, 2)])
async def test_what_may_pass_is_not_kept(shop: Shop, status: int, times: int) -> None:
    """5xx and 429 are done again; any other answer is the answer."""
    for _ in range(2):
        assert (await shop.post(f"/answers/{status}")).status_code == status
    assert len(shop.done) == times


async def test_any_bytes_are_given_again(shop: Shop) -> None:
    """Also of a stream, also such that are no text."""
    first, again = await shop.post("/bytes"), await shop.post("/bytes")
    assert first.content == again.content == b"\xff\x00\xfe"
    assert again.headers["content-type"] == "application/octet-stream"
    assert shop.done == ["bytes"]


@pytest.mark.case("requests-2")
async def test_key_and_job_are_committed_together(shop: Shop) -> None:
    """A request that fails leaves neither; repeated, it makes one job; without a key it is 400."""
    assert (await shop.post("/jobs", headers={"fail": "1"})).status_code == 503
    assert (await shop.hf.store.job_counts())["queued"] == 0
    first, again = await shop.post("/jobs"), await shop.post("/jobs")
    assert first.json() == again.json()
    assert (await shop.hf.store.job_counts())["queued"] == 1
    missing = await shop.post("/jobs", key=None)
    assert (missing.status_code, missing.json()["code"]) == (400, "idempotency_key_invalid")


@pytest.mark.case("C36")
async def test_twenty_requests_at_once_make_one_job(shop: Shop) -> None:
    """Those that are told to come again do so."""

    async def client() -> str:
        async def accepted() -> str | None:
            answer = await shop.post("/jobs")
            assert answer.status_code in (202, 409), answer.text
            return answer.json()["job"] if answer.status_code == 202 else None

        return await until(accepted)

    assert len(set(await asyncio.gather(*(client() for _ in range(20))))) == 1
    assert (await shop.hf.store.job_counts())["queued"] == 1


async def test_an_endpoint_of_starlette_is_decorated(hf: Holdfast) -> None:
    """Without FastAPI; a key can be required, and what is no key is refused."""
    done = []

    @idempotent(hf, who=lambda request: (None, "ana"), required=True)
    async def create(request: Request) -> Response:
        done.append(await request.json())
        return JSONResponse({"n": len(done)}, 201)

    app = Starlette(routes=[Route("/things", create, methods=["POST"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        for key, status in (("k", 201), ("k", 201), (None, 400), ("x" * 256, 400)):
            headers = {} if key is None else {"Idempotency-Key": key}
            assert (await client.post("/things", headers=headers, json={})).status_code == status
    assert len(done) == 1
