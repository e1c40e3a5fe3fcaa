"""Statistics and counters on SQLite: part of the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.job import State
from holdfast.store.protocol import QueueLoad, Tally
from holdfast.store.sqlite.session import STATEMENTS, Session, as_json
from holdfast.store.stats_rows import load_of, recent_of

T = TypeVar("T")


class StatsVerbs:
    async def _read(self, operation: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def _write(self, operation: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def job_counts(self, cap: int = 10_000, *, tenant: str | None = None) -> dict[str, int]:
        return await self._read(lambda session: _counts(session, tenant, cap))

    async def queue_stats(
        self, *, tenant: str | None = None, deadline_grace: float = 0.0, cap: int = 10_000, look_at: int = 10_000
    ) -> list[QueueLoad]:
        return await self._read(lambda session: load_of(_loads(session, tenant, deadline_grace, cap, look_at)))

    async def tally_add(self, tallies: Sequence[Tally]) -> None:
        def operation(session: Session) -> None:
            session.run("tally_add", tallies=as_json(tallies))
            session.run("tally_forget")

        await self._write(operation)

    async def tally_totals(self) -> list[Tally]:
        return await self._read(lambda session: [Tally(*row) for row in session.all("tally_totals")])

    async def tally_recent(self, minutes: int) -> tuple[float, list[Tally]]:
        return await self._read(lambda session: recent_of(minutes, session.all("tally_recent", minutes=minutes)))


def _loads(session: Session, tenant: str | None, grace: float, cap: int, look_at: int) -> list[Any]:
    found: list[Any] = []
    waiting = "queue_stats_waiting" if tenant is None else "queue_stats_waiting_of"
    for row in session.all("queue_list_waiting"):
        found += session.all(waiting, queue=row["queue"], tenant=tenant, cap=cap)
    found += session.all("queue_stats_held", tenant=tenant, cap=cap)
    running = STATEMENTS["queue_stats_running"]
    if tenant is not None:
        running = running.replace("/* tenant */", "AND coalesce(tenant, '') = :tenant")
    values = {"tenant": tenant, "grace": grace, "cap": cap, "look_at": min(cap, look_at)}
    return found + session.execute(running, values).fetchall()


def _counts(session: Session, tenant: str | None, cap: int) -> dict[str, int]:
    counts = {state.value: 0 for state in State}
    for row in session.all("job_counts" if tenant is None else "job_counts_of", tenant=tenant, cap=cap):
        counts[row["state"]] = min(cap, counts[row["state"]] + row["n"])
    return counts
