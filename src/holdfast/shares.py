"""Whose time a machine's time is: divided at each moment among the jobs that run on it, and added up by tenant and month."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from holdfast.errors import StorageError

log = logging.getLogger("holdfast")


class Sink(Protocol):
    async def shared(self, statement: str, *args: Any) -> list[dict[str, Any]]: ...


class Shares:
    """A clock that goes the slower the more jobs run: what it shows between a job's start and its end is the job's share."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._at = now()
        self._clock = 0.0
        self._began: dict[str, float] = {}
        self._sums: dict[str, tuple[int, float]] = {}

    def _advance(self) -> None:
        now = self._now()
        if self._began:
            self._clock += (now - self._at) / len(self._began)
        self._at = now

    def began(self, run_id: str) -> None:
        self._advance()
        self._began[run_id] = self._clock

    def ended(self, run_id: str, tenant: str | None) -> None:
        self._advance()
        began = self._began.pop(run_id, None)
        if began is not None:
            runs, seconds = self._sums.get(tenant or "", (0, 0.0))
            self._sums[tenant or ""] = (runs + 1, seconds + self._clock - began)

    async def send(self, sink: Sink) -> None:
        """Add to what the database has; what cannot be sent now goes with the next."""
        sums, self._sums = self._sums, {}
        while sums:
            tenant, (runs, seconds) = sums.popitem()
            try:
                await sink.shared("machine_count", f"{datetime.now(UTC):%Y-%m}", f"tenant:{tenant}", runs, seconds)
            except StorageError as error:
                log.warning("What jobs used of this machine is counted later: %s", error)
                for name, (more, longer) in {tenant: (runs, seconds), **sums}.items():
                    before = self._sums.get(name, (0, 0.0))
                    self._sums[name] = (before[0] + more, before[1] + longer)
                return
