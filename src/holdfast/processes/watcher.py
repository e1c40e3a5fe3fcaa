"""The watcher of a worker: what its store tells of, passed on to the parts that want to know."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from holdfast.processes.claimer import Claimer
from holdfast.processes.heart import Heart
from holdfast.processes.scheduler import Scheduler
from holdfast.run import Attempt
from holdfast.store.protocol import TENANT_MARK

CANCEL_LOOK_SECONDS = 0.5


class Body(Protocol):
    """The worker, as its watcher sees it."""

    loop: asyncio.AbstractEventLoop
    running: dict[str, Attempt]


class Watcher:
    def __init__(self, body: Body, claimer: Claimer, heart: Heart, scheduler: Scheduler | None) -> None:
        self._body = body
        self._claimer = claimer
        self._heart = heart
        self._scheduler = scheduler
        self._cancel_look: asyncio.TimerHandle | None = None

    def heard(self, what: str) -> None:
        """From any thread."""
        if self._scheduler is not None:
            self._scheduler.heard(what)
        with contextlib.suppress(RuntimeError):
            self._body.loop.call_soon_threadsafe(self._woken, what)

    def _woken(self, what: str) -> None:
        running = self._body.running
        if what == "":
            self._claimer.look_everywhere()
        elif what.startswith("job:"):
            queue, named, tenant = what[4:].partition(TENANT_MARK)
            self._claimer.heard(queue, tenant if named else None)
        if what.startswith("cancel:") and any(a.claimed.id == what[7:] for a in running.values()):
            self._heart.beat_soon()
        elif what == "" and running and self._cancel_look is None:
            self._cancel_look = self._body.loop.call_later(CANCEL_LOOK_SECONDS, self._look_for_cancels)

    def _look_for_cancels(self) -> None:
        self._cancel_look = None
        if self._body.running:
            self._heart.beat_soon()
