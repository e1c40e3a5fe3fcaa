"""An application with a few tasks, and clients that call its API as somebody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast import Abort, Holdfast, current
from holdfast.web.server import Server
from tests.web.people import BASE, key_of

ROLES = ("viewer", "member", "admin", "owner", "service")


def add_tasks(hf: Holdfast) -> None:
    @hf.task(expose="member", max_attempts=1)
    async def add(a: int, b: int = 0) -> int:
        current().log.info("adding", step="sum", a=a)
        current().log.warning("done")
        if a < 0:
            raise Abort("negative", code="negative")
        return a + b

    @hf.task(expose="admin")
    async def erase(what: str) -> None: ...

    @hf.task
    async def internal() -> None: ...

    @hf.task(expose="member", cancel="immediate")
    async def wait() -> None:
        current().log.info("waiting")
        await asyncio.Event().wait()


class Scene:
    """Who calls is the first argument of every call: `await scene.get("acme member", "/api/jobs")`."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        add_tasks(hf)
        self.app: Server = hf.asgi()
        self._keys: dict[str, str] = {}

    async def key(self, who: str) -> str | None:
        """`acme viewer`, `service`, or `nobody`."""
        if who == "nobody":
            return None
        if who not in self._keys:
            tenant, _, role = who.rpartition(" ")
            self._keys[who] = await key_of(self.hf, role, tenant or None)
        return self._keys[who]

    @asynccontextmanager
    async def calling(self, who: str) -> AsyncIterator[httpx.AsyncClient]:
        key = await self.key(who)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        transport = httpx.ASGITransport(self.app, client=("203.0.113.9", 1234))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as speaking:
            yield speaking

    async def call(self, who: str, method: str, path: str, **what: Any) -> httpx.Response:
        async with self.calling(who) as speaking:
            return await speaking.request(method, path, **what)

    async def get(self, who: str, path: str, **what: Any) -> httpx.Response:
        return await self.call(who, "GET", path, **what)

    async def post(self, who: str, path: str, body: Any = None, **what: Any) -> httpx.Response:
        return await self.call(who, "POST", path, json=body, **what)

    async def enqueue(self, who: str = "acme member", task: str = "add", **body: Any) -> str:
        usual = {"args": {"a": 1}} if task == "add" else {}
        answer = await self.post(who, "/api/jobs", {"task": task, **usual, **body})
        assert answer.status_code == 202, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    async def work(self) -> None:
        await self.hf.run_worker(exit_when_idle=0.0)
