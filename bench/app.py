"""The tasks that are measured."""

from __future__ import annotations

import asyncio
import logging
import time

from holdfast import Holdfast, current

started_after: list[float] = []
"""Seconds from the call of enqueue to the first line of the task, one per stamped job."""


CHATTER_PER_SECOND = 1000


def make_app(url: str | None = None) -> Holdfast:
    app = Holdfast(url)

    @app.task(expose="member")
    async def noop(number: int) -> None:
        return None

    @app.task
    async def stamp(sent_at: float) -> None:
        started_after.append(time.monotonic() - sent_at)

    @app.task
    async def chatter(lines: int) -> None:
        """Says when it says it, at an even pace."""
        began = time.monotonic()
        for number in range(lines):
            ahead = began + number / CHATTER_PER_SECOND - time.monotonic()
            if ahead > 0.002:
                await asyncio.sleep(ahead)
            current().log.info(str(time.monotonic()))

    @app.task
    async def talk(lines: int) -> None:
        for number in range(lines):
            current().log.info(f"line {number} of what this task has to say")

    @app.task(capture=())
    async def talk_to_file(lines: int, path: str) -> None:
        handler = logging.FileHandler(path)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger = logging.Logger("to a file")
        logger.addHandler(handler)
        for number in range(lines):
            logger.info("line %d of what this task has to say", number)
        handler.close()

    return app
