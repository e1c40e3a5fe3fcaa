"""Statistics and counters on PostgreSQL: part of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.job import State
from holdfast.store.protocol import QueueLoad, Tally
from holdfast.store.stats_rows import load_of, recent_of


class StatsVerbs:
    _clock: DatabaseClock

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        raise NotImplementedError

    async def job_counts(self, cap: int = 10_000, *, tenant: str | None = None) -> dict[str, int]:
        found = {row[0]: row[1] or 0 for row in await self._fetch("job_counts", tenant, cap)}
        return {state.value: found.get(state.value, 0) for state in State}

    async def queue_stats(
        self, *, tenant: str | None = None, deadline_grace: float = 0.0, cap: int = 10_000, look_at: int = 10_000
    ) -> list[QueueLoad]:
        return load_of(await self._fetch("queue_stats", tenant, deadline_grace, cap, min(cap, look_at), self._clock.now()))

    async def tally_add(self, tallies: Sequence[Tally]) -> None:
        await self._fetch("tally_add", msgspec.json.encode(tallies).decode(), self._clock.now())

    async def tally_totals(self) -> list[Tally]:
        return [Tally(*row) for row in await self._fetch("tally_totals")]

    async def tally_recent(self, minutes: int) -> tuple[float, list[Tally]]:
        return recent_of(minutes, await self._fetch("tally_recent", minutes, self._clock.now()))
