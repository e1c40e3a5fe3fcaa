"""The tasks that are measured."""

from __future__ import annotations

import time

from holdfast import Holdfast

started_after: list[float] = []
"""Seconds from the call of enqueue to the first line of the task, one per stamped job."""


def make_app(url: str | None = None) -> Holdfast:
    app = Holdfast(url)

    @app.task(expose="member")
    async def noop(number: int) -> None:
        return None

    @app.task
    async def stamp(sent_at: float) -> None:
        started_after.append(time.monotonic() - sent_at)

    return app
