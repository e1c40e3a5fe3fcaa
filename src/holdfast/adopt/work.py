"""What a worker of an adopted table needs: claim, heartbeat, finish, fail. All of it fenced, as Holdfast's own runs are."""

from __future__ import annotations

import reprlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast import codec
from holdfast.adopt.layout import Layout, look
from holdfast.adopt.rescue import LEFT, backoff
from holdfast.adopt.table import AdoptedTable, stored_table
from holdfast.errors import InvalidOption, LeaseLost, NotFound
from holdfast.redact import redact
from holdfast.settings import Settings
from holdfast.store.protocol import Transaction

T = TypeVar("T")

LIMIT_MAX = 1_000
CLAIMED = ("id", "status", "locked_by", "lease_expires_at", "last_heartbeat_at", "started_at", "attempt_count")
FENCE = ("id", "held", "locked_by", "attempt_count")
_EXTRA = ("holdfast attempt", "holdfast attempts")


class Platform(Protocol):
    @property
    def settings(self) -> Settings: ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]: ...

    def call_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Row(msgspec.Struct, kw_only=True):
    """A row that this worker holds now."""

    id: Any
    attempt: int
    max_attempts: int
    locked_by: str
    data: dict[str, Any]
    """All its columns, as they were before the claim."""


class AdoptedWork:
    """Made by `hf.adopted("asr_jobs")`."""

    def __init__(self, platform: Platform, table: AdoptedTable | str) -> None:
        """A name alone is looked up among those that `holdfast adopt` has stored, at the first call."""
        self._table = table
        self._platform = platform
        self._layout: Layout | None = None

    async def claim(self, worker: str, *, limit: int = 1, stage: str | None = None, lease: float | None = None) -> list[Row]:
        """Up to `limit` queued rows whose time has come; nobody else gets them until the lease is over."""
        who = _text("worker", worker)
        if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= LIMIT_MAX:
            raise InvalidOption(f"limit must lie between 1 and {LIMIT_MAX}, not {reprlib.repr(limit)}.")
        seconds = self._lease(lease)
        async with self._platform.transaction() as tx:
            layout = await self._look(tx)
            now = await _now(tx)
            found = await tx.fetch(
                layout.sql("rows_claimable"),
                now,
                limit,
                layout.adopted.word("queued"),
                stage,
                self._platform.settings.max_attempts,
            )
            rows = [_row(layout.adopted, row, who) for row in found]
            taking = [_taking(layout.adopted, row, now, seconds) for row in rows]
            if rows:
                await tx.execute(layout.sql("rows_claim", *CLAIMED), msgspec.json.encode(taking).decode())
        return rows

    async def heartbeat(self, row: Row, *, lease: float | None = None) -> None:
        """Hold it for another lease. LeaseLost: the reaper has taken it, so stop."""
        seconds = self._lease(lease)
        async with self._platform.transaction() as tx:
            now = await _now(tx)
            given = {"lease_expires_at": now + seconds, "last_heartbeat_at": now}
            await self._fenced(tx, "row_beat", row, given)

    async def finish(self, row: Row, *, tx: Transaction | None = None) -> None:
        """Completed. With `tx=` of `hf.transaction()`, together with what the run has to write."""
        async with self._within(tx) as own:
            layout = await self._look(own)
            await self._fenced(own, "row_leave", row, dict.fromkeys(LEFT[1:]) | {"status": layout.adopted.word("completed")})

    async def fail(self, row: Row, *, code: str, reason: str, retry: bool = True, tx: Transaction | None = None) -> bool:
        """Tried again after the backoff while attempts are left, else failed; whether it will be tried again."""
        again = retry and row.attempt < row.max_attempts
        given: dict[str, Any] = {"fail_code": _text("code", code), "fail_reason": redact(_text("reason", reason))}
        async with self._within(tx) as own:
            delay = backoff(self._platform.settings, row.attempt)
            given["next_earliest_run_at"] = await _now(own) + delay if again else None
            given["status"] = (await self._look(own)).adopted.word("queued" if again else "failed")
            await self._fenced(own, "row_leave", row, given)
        return again

    def claim_sync(self, worker: str, *, limit: int = 1, stage: str | None = None, lease: float | None = None) -> list[Row]:
        return self._platform.call_sync(self.claim(worker, limit=limit, stage=stage, lease=lease))

    def heartbeat_sync(self, row: Row, *, lease: float | None = None) -> None:
        self._platform.call_sync(self.heartbeat(row, lease=lease))

    def finish_sync(self, row: Row) -> None:
        self._platform.call_sync(self.finish(row))

    def fail_sync(self, row: Row, *, code: str, reason: str, retry: bool = True) -> bool:
        return self._platform.call_sync(self.fail(row, code=code, reason=reason, retry=retry))

    # -- inside

    async def _look(self, tx: Transaction) -> Layout:
        """Once: a column that goes away later is an error of the statement."""
        if self._layout is None:
            layout = await look(tx, await self._adopted(tx))
            layout.require_complete()
            self._layout = layout
        return self._layout

    async def _adopted(self, tx: Transaction) -> AdoptedTable:
        if isinstance(self._table, AdoptedTable):
            return self._table
        rows = await tx.shared("adopt_list") if await tx.shared("adopt_in_use") else []
        for row in rows:
            if row["name"] == self._table:
                return stored_table(row["name"], row["mapping"])
        raise NotFound(f"The table {self._table!r} is not adopted: run `holdfast adopt --table {self._table} --apply`.")

    @asynccontextmanager
    async def _within(self, tx: Transaction | None) -> AsyncIterator[Transaction]:
        if tx is None:
            async with self._platform.transaction() as own:
                yield own
        elif hasattr(tx, "shared"):
            yield tx
        else:
            raise InvalidOption(f"tx must be what hf.transaction() gives, not {type(tx).__name__}.")

    async def _fenced(self, tx: Transaction, statement: str, row: Row, given: dict[str, Any]) -> None:
        layout = await self._look(tx)
        fence = {
            "id": row.id,
            "held": layout.adopted.word("running"),
            "locked_by": row.locked_by,
            "attempt_count": row.attempt,
        }
        sql = layout.sql(statement, *FENCE, *given)
        if not await tx.fetch(sql, msgspec.json.encode([{**fence, **given}]).decode()):
            raise LeaseLost(f"{layout.adopted.table} {row.id} is no longer held by {row.locked_by}; stop working on it.")

    def _lease(self, lease: float | None) -> float:
        try:
            return self._platform.settings.lease if lease is None else float(codec.seconds(0.001)(lease))
        except ValueError as wrong:
            raise InvalidOption(f"lease must be {wrong}, not {reprlib.repr(lease)}.") from None


def _row(adopted: AdoptedTable, row: dict[str, Any], worker: str) -> Row:
    return Row(
        id=row[adopted.column("id")],
        attempt=row[_EXTRA[0]],
        max_attempts=row[_EXTRA[1]],
        locked_by=worker,
        data={name: value for name, value in row.items() if name not in _EXTRA},
    )


def _taking(adopted: AdoptedTable, row: Row, now: float, lease: float) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": adopted.word("running"),
        "locked_by": row.locked_by,
        "lease_expires_at": now + lease,
        "last_heartbeat_at": now,
        "started_at": now,
        "attempt_count": row.attempt,
    }


async def _now(tx: Transaction) -> float:
    return float((await tx.shared("adopt_now"))[0]["now_at"].timestamp())


def _text(what: str, value: object) -> str:
    try:
        return str(codec.text(2_000)(value))
    except ValueError as wrong:
        raise InvalidOption(f"{what} must be {wrong}, not {reprlib.repr(value)}.") from None
