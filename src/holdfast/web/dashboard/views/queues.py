"""Queues: what is in them, how they have been doing for an hour, and their brakes."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import InvalidOption
from holdfast.pages import Nav, Pages
from holdfast.stats import COUNT_CAP
from holdfast.store.protocol import Queue, QueueLoad
from holdfast.web.dashboard import history, words
from holdfast.web.dashboard.frame import Loads, PageRequest

pages = Pages("queues", nav=[Nav("Queues", "/queues", "read_queues")])


class QueueRow(msgspec.Struct):
    name: str
    queue: Queue
    load: QueueLoad
    slow: str
    ends: list[float]
    """Minute by minute; empty where one tenant is looked at."""
    cap: int
    """Up to where its jobs were counted."""


async def queue_rows(page: PageRequest, found: Loads | None = None) -> list[QueueRow]:
    """Those that were set, that have something in them, or that had. `found`: what is in them, where that is known already."""
    known = {queue.name: queue for queue in await page.hf.queues.list()}
    found = await page.loads() if found is None else found
    loads = {load.queue: load for load in found.of_queues}
    ends = await history.by_queue(page.hf) if page.tenant is None else {}
    return [
        QueueRow(
            name,
            known.get(name) or Queue(name=name),
            load := loads.get(name) or QueueLoad(queue=name),
            f"{load.slow}{'+' if found.at_least else ''}" if load.slow else "",
            ends.get(name) or ([0.0] * history.MINUTES if page.tenant is None else []),
            found.cap,
        )
        for name in sorted({*known, *loads, *ends})
    ]


@pages.get("/queues", "read_queues")
async def list_queues(page: PageRequest) -> Any:
    return page.render("queues.html", queues=await queue_rows(page))


@pages.post("/queues/pause", "operate")
async def pause(page: PageRequest) -> Any:
    name = await _name(page)
    load = await _load(page, name)
    sentence = (
        f"Pauses queue {name} for all organizations: {words.many(load.waiting, 'waiting job')} will not start; "
        f"{words.many(load.running, 'running job')} may finish."
    )
    question = await page.confirmed(f"Pause queue {name}?", sentence, button="Pause the queue", danger=True)
    if question is not None:
        return question
    await page.hf.queues.pause(name, by=page.actor)
    return await page.redirect_back("/queues", "paused")


@pages.post("/queues/resume", "operate")
async def resume(page: PageRequest) -> Any:
    name = await _name(page)
    load = await _load(page, name)
    sentence = f"Resumes queue {name}: {words.many(load.waiting, 'waiting job')} may start."
    question = await page.confirmed(f"Resume queue {name}?", sentence, button="Resume the queue")
    if question is not None:
        return question
    await page.hf.queues.resume(name, by=page.actor)
    return await page.redirect_back("/queues", "resumed")


@pages.post("/queues/limit", "operate")
async def set_limit(page: PageRequest) -> Any:
    name = await _name(page)
    limit = whole_or_none((await page.form()).get("limit"), "limit")
    before = (await page.hf.queues.get(name)).limit
    sentence = (
        f"At most {_limit(limit)} of queue {name} run at once, instead of {_limit(before)}. Holds from the next claim on."
    )
    question = await page.confirmed(f"Change the limit of queue {name}?", sentence, button="Change the limit")
    if question is not None:
        return question
    await page.hf.queues.set(name, limit=limit, by=page.actor)
    return await page.redirect_back("/queues", "saved")


def _limit(limit: int | None) -> str:
    return "any number of jobs" if limit is None else words.many(limit, "job")


async def _name(page: PageRequest) -> str:
    name = (await page.form()).get("queue")
    if not name:
        raise InvalidOption("The form names no queue.")
    return name


async def _load(page: PageRequest, name: str) -> QueueLoad:
    loads = await page.hf.store.queue_stats(cap=COUNT_CAP)
    return next((load for load in loads if load.queue == name), QueueLoad(queue=name))


def whole_or_none(text: str, what: str) -> int | None:
    """A number from a form; empty: none."""
    if not text:
        return None
    if not text.isdecimal() or len(text) > 10:
        raise InvalidOption(f"The {what} must be a whole number of 0 or more, or empty, not {text!r:.50}.")
    return int(text)
