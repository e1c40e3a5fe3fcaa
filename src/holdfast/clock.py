"""Time. In production the database's clock decides; a test may own it.

Stores ask `clock.now()` for every statement: `None` means *your own clock, please*.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class DatabaseClock:
    """Leave time to the database, so that a worker whose clock is off cannot disturb leases, order or schedules."""

    def now(self) -> datetime | None:
        return None


class ManualClock(DatabaseClock):
    """A clock that only moves when told to: for tests."""

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float = 0, **parts: float) -> None:
        self._now += timedelta(seconds=seconds, **parts)
