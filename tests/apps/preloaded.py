"""Web applications that call Holdfast while they are imported, before their server forks its workers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from holdfast import Holdfast

hf = Holdfast()


@hf.task(name="add")
def add(n: int) -> int:
    return n


first = threading.Thread(target=add.enqueue_sync, args=(0,))  # not here: uvicorn imports inside of its event loop
first.start()
first.join()


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Each request enqueues; answers with how many jobs there are."""
    add.enqueue_sync(1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(len(hf.jobs_sync(limit=200))).encode()]


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """The same on an event loop."""
    if scope["type"] == "http":
        await add.enqueue(1)
        body = str(len(await hf.jobs(limit=200))).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": body})
