"""When something happens by the clock: cron expressions in a time zone, and intervals. Pure: no database, no clock of its own.

Daylight saving, as Debian's cron has it: a fixed time that does not exist (02:30 in the night the clocks go forward) comes
right after the gap, one that exists twice comes once, at its first occurrence; what runs every few minutes or every hour
(`*` in minute or hour) goes by the hours that really pass.
"""

from __future__ import annotations

import reprlib
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal

import msgspec

from holdfast import codec
from holdfast.errors import HoldfastError, InvalidOption

SECONDS_MIN = 1.0
CRON_CHARS_MAX = 200
LATE_SECONDS = 60.0
"""A tick that comes later than this was missed."""
OWED_SECONDS = 86_400.0
"""A missed tick is caught up within this time. A backup that was restored later than that fires nothing of the past."""

Missed = Literal["skip", "once"]


class When(msgspec.Struct, frozen=True):
    """Either cron with its time zone, or seconds."""

    cron: str | None
    seconds: float | None
    tz: str = "UTC"

    def next_after(self, moment: datetime, tick: datetime | None = None) -> datetime:
        """The first tick after this moment. Intervals go on from an earlier `tick`, so that they do not drift."""
        if self.seconds is not None:
            return _next_of_interval(self.seconds, moment, tick)
        assert self.cron is not None
        return _next_of_cron(self.cron, self.tz, moment)


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a schedule whose tick has come."""

    fires: bool
    next_at: datetime


def decide(when: When, missed: Missed, tick: datetime, now: datetime) -> Verdict:
    """Never more than one job, whatever was missed, and the next tick lies ahead."""
    late = (now - tick).total_seconds()
    fires = late <= LATE_SECONDS or (missed == "once" and late <= OWED_SECONDS)
    return Verdict(fires, when.next_after(now, tick))


def when_of(every: object, tz: object = "UTC", error: type[HoldfastError] = InvalidOption) -> When:
    """Checked: a cron expression of five fields (or six, with seconds first), or a number of seconds."""
    if isinstance(every, str):
        return _cron(every, _zone_name(tz, error), error)
    try:
        seconds = float(codec.seconds(SECONDS_MIN)(every))
    except ValueError as wrong:
        raise error(f"A schedule takes a cron expression such as '0 8 * * mon-fri', or seconds: {wrong}.") from None
    return When(None, seconds, _zone_name(tz, error))


def _cron(expression: str, tz: str, error: type[HoldfastError]) -> When:
    shown = reprlib.repr(expression)
    if len(expression) > CRON_CHARS_MAX or "\x00" in expression:
        raise error(f"{shown} is no cron expression: it is too long, or not text.")
    when = When(" ".join(expression.split()), None, tz)
    try:
        when.next_after(datetime(2026, 1, 1, tzinfo=UTC))
    except StopIteration:
        raise error(f"The cron expression {shown} names a day that never comes.") from None
    except Exception as wrong:  # what a wrong expression raises is the library's own affair
        hint = "minute hour day-of-month month day-of-week, such as '0 8 * * mon-fri'"
        raise error(f"{shown} is no cron expression ({wrong}); it has five fields: {hint}.") from None
    return when


def _zone_name(tz: object, error: type[HoldfastError]) -> str:
    try:
        if not isinstance(tz, str) or len(tz) > 100:
            raise ValueError
        _zone(tz)
    except Exception:  # ZoneInfo raises what its files raise: missing keys, odd paths, directories
        raise error(f"There is no time zone {reprlib.repr(tz)}; they are named like 'Europe/Paris', or 'UTC'.") from None
    return tz


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # late: few programs need it

    return ZoneInfo(name)


def _next_of_interval(seconds: float, moment: datetime, tick: datetime | None) -> datetime:
    step = timedelta(seconds=seconds)
    if tick is None:
        return moment + step
    return tick + max(0, (moment - tick) // step + 1) * step


def _next_of_cron(expression: str, tz: str, moment: datetime) -> datetime:
    from cronsim import CronSim  # late: most workers have no schedules

    ticks = CronSim(expression, moment.astimezone(_zone(tz)))
    while (found := next(ticks).astimezone(UTC)) <= moment:
        # In the second pass of an hour that comes twice, the first occurrence of a later minute is already past.
        pass
    return found
