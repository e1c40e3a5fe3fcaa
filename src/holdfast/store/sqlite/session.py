"""What one operation sees of the database: the named statements, one moment in time, and the wake-ups it causes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.clock import DatabaseClock
from holdfast.store.named_sql import load_statements

STATEMENTS = load_statements("holdfast.store.sqlite")


def now_of(clock: DatabaseClock) -> float:
    """Unix seconds: on SQLite the host's clock is the database's."""
    moment = clock.now()
    return time.time() if moment is None else moment.timestamp()


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Session:
    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self.connection = connection
        self.now = now
        self.wakes: set[str] = set()
        """Told once what this operation wrote is committed."""

    def all(self, statement: str, **values: Any) -> list[sqlite3.Row]:
        return self.execute(STATEMENTS[statement], values).fetchall()

    def one(self, statement: str, **values: Any) -> sqlite3.Row | None:
        # Not fetchone(): a statement that is not read to its end stays open and blocks the commit.
        rows = self.all(statement, **values)
        return rows[0] if rows else None

    def run(self, statement: str, **values: Any) -> int:
        """How many rows it changed."""
        return self.execute(STATEMENTS[statement], values).rowcount

    def execute(self, sql: str, values: dict[str, Any]) -> sqlite3.Cursor:
        return self.connection.execute(sql, {"now": self.now, **values})

    def wake_queue(self, queue: str) -> None:
        self.wakes.add(f"job:{queue}")

    def wake_log(self, run_id: str) -> None:
        self.wakes.add(f"log:{run_id}")

    def wake_next_in_order(self, tenant: str | None, order_key: str | None) -> None:
        """The trigger has let the next job of this ordering key go, if there is one."""
        if order_key is not None:
            head = self.one("order_head", tenant=tenant or "", order_key=order_key)
            if head is not None and head["state"] == "queued" and head["hold"] is None:
                self.wake_queue(head["queue"])


NewSession = Callable[[sqlite3.Connection], Session]
