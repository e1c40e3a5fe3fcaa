"""Pages that hold nothing but the log panel, with the dashboard's policy, and a task that says what a test tells it to."""

from __future__ import annotations

import asyncio
import html
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast import Abort, Holdfast, RetryLater, current
from tests.support.browsing import seen
from tests.support.served import Served
from tests.support.source import PACKAGE

if TYPE_CHECKING:
    from playwright.sync_api import Page

STATIC = PACKAGE / "web" / "dashboard" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A log</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<link rel="stylesheet" href="/test/static/log-view.css"><link rel="stylesheet" href="/test/page.css">
{script}</head><body><main><h1>A log</h1>
<log-view job="{job}" run="{run}" api="/api" state="{state}"{more}><pre>Written by the server.</pre></log-view>
</main></body></html>"""
SCRIPT = '<script type="module" src="/test/static/log-view.js"></script>'
STYLE = ":root{color-scheme:light dark}body{margin:1rem;font:15px system-ui;background:light-dark(#fff,#0e1116)}"

_waiting_words: dict[str, asyncio.Queue[tuple[str, str, dict[str, Any]]]] = defaultdict(asyncio.Queue)


def with_panel_pages(hf: Holdfast, app: ASGIApp) -> ASGIApp:
    _add_tasks(hf)

    async def panel(request: Request) -> Response:
        job = await hf.get(request.path_params["job"])
        more = "".join(f' {name}="{html.escape(value)}"' for name, value in request.query_params.items() if name != "run")
        run = request.query_params.get("run", str(max(1, job.run_no)))
        return HTMLResponse(PAGE.format(job=job.id, run=html.escape(run), state=job.state, more=more, script=SCRIPT))

    async def style(request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    routes = [Route("/panel/{job}", panel), Route("/page.css", style), Mount("/static", StaticFiles(directory=STATIC))]
    return Starlette(routes=[Mount("/test", _Policed(Starlette(routes=routes))), Mount("/", app)])


class _Policed:
    """The policy holds for scripts of workers too: theirs comes with the script."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def policed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        await self._app(scope, receive, policed)


def _add_tasks(hf: Holdfast) -> None:
    @hf.task(name="talk", max_attempts=3, cancel="immediate")
    async def talk(name: str) -> str:
        """Says what the test tells it to."""
        while True:
            level, message, more = await _waiting_words[name].get()
            if level == "end":
                return message
            if level == "abort":
                raise Abort(message)
            if level == "retry":
                raise RetryLater(more["delay"], message)
            getattr(current().log, level)(message, **more)

    @hf.task(name="many", max_attempts=1)
    async def many(count: int) -> None:
        for number in range(1, count + 1):
            level = "error" if number % 1000 == 0 else "warning" if number % 100 == 0 else "info"
            getattr(current().log, level)(f"line {number} of a long log", number=number)
            if number % 500 == 0:
                await asyncio.sleep(0)


class Talk:
    """A job whose log the test writes, line by line."""

    def __init__(self, served: Served, name: str, tenant: str = "acme", *, begin: bool = True) -> None:
        self._served, self.name = served, name
        self.id = served.run(self._enqueue(tenant))
        if begin:
            self.begin()

    async def _enqueue(self, tenant: str) -> str:
        job = await self._served.hf.tasks["talk"].options(tenant=tenant, queue=self.name).enqueue(self.name)
        return job.id

    def begin(self) -> None:
        """Workers of its own, until it has ended."""
        self._served.start(self._work())

    async def _work(self) -> None:
        hf = self._served.hf
        while not (await hf.get(self.id)).state.ended:
            await hf.run_worker(queues=[self.name], exit_when_idle=0.0)

    def say(self, *messages: str, level: str = "info", **more: Any) -> None:
        self._served.run(self._put([(level, message, more) for message in messages]))

    def end(self, result: str = "done") -> None:
        self.say(result, level="end")

    def abort(self, why: str) -> None:
        self.say(why, level="abort")

    def retry(self, why: str, delay: float = 0.0) -> None:
        self.say(why, level="retry", delay=delay)

    async def _put(self, words: list[tuple[str, str, dict[str, Any]]]) -> None:
        for word in words:
            _waiting_words[self.name].put_nowait(word)


def open_panel(page: Page, job: str, *, base: str = "", hash: str = "", **attributes: str | int) -> None:
    """The panel's page, once its first lines are there; `data_poll=1` becomes the attribute `data-poll`."""
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in attributes.items())
    page.goto(f"{base}/test/panel/{job}?{query}{hash}")
    until_panel(page, "ready", "")


def until_panel(page: Page, name: str, value: str) -> None:
    """Until the element says so in one of its data attributes."""
    seen(page, "([name, value]) => document.querySelector('log-view')?.dataset[name] === value", [name, value])


def messages(page: Page) -> list[str]:
    found: list[str] = page.evaluate("() => [...document.querySelectorAll('.lv-msg')].map(one => one.textContent)")
    return found


def until_messages(page: Page, count: int) -> list[str]:
    seen(page, "count => document.querySelectorAll('.lv-msg').length >= count", count)
    return messages(page)
