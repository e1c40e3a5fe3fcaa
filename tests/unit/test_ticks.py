"""The walk from tick to tick: it never skips, never doubles, and knows the nights in which clocks are changed."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidOption
from holdfast.ticks import LATE_SECONDS, OWED_SECONDS, When, decide, when_of
from tests.support.fuzzing import examples

PARIS = ZoneInfo("Europe/Paris")
EXPRESSIONS = [
    "0 8 * * mon-fri",
    "30 2 * * *",
    "0,30 2 * * *",
    "*/15 * * * *",
    "15 * * * *",
    "0 0 1 * *",
    "0 2,3 * * *",
    "* 2 * * *",
]
ZONES = ["UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]


def ticks_between(when: When, start: datetime, end: datetime) -> list[datetime]:
    found, at = [], start
    while (at := when.next_after(at)) < end:
        found.append(at)
    return found


def local(ticks: list[datetime], zone: ZoneInfo = PARIS) -> list[str]:
    return [tick.astimezone(zone).strftime("%m-%d %H:%M%z") for tick in ticks]


def test_a_time_of_day_that_does_not_exist_comes_right_after_the_gap() -> None:
    """02:30 in the night of 2027-03-28, when Paris goes from 02:00 to 03:00: at 03:00, once; the days around as always."""
    found = ticks_between(
        when_of("30 2 * * *", "Europe/Paris"), datetime(2027, 3, 27, 12, tzinfo=UTC), datetime(2027, 3, 29, 12, tzinfo=UTC)
    )
    assert local(found) == ["03-28 03:00+0200", "03-29 02:30+0200"]


def test_a_time_of_day_that_exists_twice_comes_once() -> None:
    """02:30 in the night of 2027-10-31, when Paris repeats the hour from 02:00 to 03:00: the first of the two."""
    found = ticks_between(
        when_of("30 2 * * *", "Europe/Paris"), datetime(2027, 10, 30, 12, tzinfo=UTC), datetime(2027, 11, 1, 12, tzinfo=UTC)
    )
    assert local(found) == ["10-31 02:30+0200", "11-01 02:30+0100"]


def test_asked_within_the_repeated_hour_the_next_one_still_lies_ahead() -> None:
    """At 02:10 of the second pass, 02:30 of the first pass is over: the next tick is tomorrow's."""
    asked = datetime(2027, 10, 31, 2, 10, tzinfo=PARIS, fold=1).astimezone(UTC)
    assert local([when_of("30 2 * * *", "Europe/Paris").next_after(asked)]) == ["11-01 02:30+0100"]


@pytest.mark.parametrize(("day", "hours"), [(datetime(2027, 3, 28), 23), (datetime(2027, 10, 31), 25)])
def test_an_hourly_schedule_goes_by_the_hours_that_really_pass(day: datetime, hours: int) -> None:
    """23 ticks on the short day, 25 on the long one, each an hour after the one before."""
    start = day.replace(tzinfo=PARIS)
    end = (day + timedelta(days=1)).replace(tzinfo=PARIS)
    found = ticks_between(when_of("15 * * * *", "Europe/Paris"), start.astimezone(UTC), end.astimezone(UTC))
    assert len(found) == hours
    assert {later - earlier for earlier, later in itertools.pairwise(found)} == {timedelta(hours=1)}


@settings(max_examples=examples(80), deadline=None)
@given(
    expression=st.sampled_from(EXPRESSIONS),
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    looks=st.lists(st.integers(1, 5 * 3600), min_size=1, max_size=60),
)
def test_looking_at_odd_moments_walks_the_same_ticks(expression: str, zone: str, start: datetime, looks: list[int]) -> None:
    """Whoever looks now and then meets each tick once and in order, and misses none of those an unbroken walk has."""
    when = when_of(expression, zone)
    now, pending, met = start, when.next_after(start), []
    for seconds in looks:
        now += timedelta(seconds=seconds)
        while pending <= now:  # a look for every tick that fell due, as if nobody were ever late
            met.append(pending)
            pending = when.next_after(pending)
    assert met == ticks_between(when, start, now + timedelta(microseconds=1))
    assert met == sorted(set(met)) and all(tick > start for tick in met)


@settings(max_examples=examples(80), deadline=None)
@given(
    seconds=st.floats(1, 100_000),
    start=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC)),
    looks=st.lists(st.floats(0, 400_000), min_size=1, max_size=30),
)
def test_an_interval_neither_drifts_nor_doubles(seconds: float, start: datetime, looks: list[float]) -> None:
    """Every tick is a whole number of intervals after the first one, however late the looks are, and each lies ahead."""
    when = When(None, seconds)
    tick = first = when.next_after(start)
    now = start
    for pause in looks:
        now += timedelta(seconds=pause)
        if tick <= now:
            following = decide(when, "once", tick, now).next_at
            assert now < following <= now + timedelta(seconds=seconds)
            tick = following
    assert (tick - first) % timedelta(seconds=seconds) == timedelta()


@pytest.mark.parametrize(
    ("missed", "late", "fires"),
    [
        ("skip", 0.0, True),
        ("skip", LATE_SECONDS, True),
        ("skip", LATE_SECONDS + 1, False),
        ("once", LATE_SECONDS + 1, True),
        ("once", OWED_SECONDS, True),
        ("once", OWED_SECONDS + 1, False),
    ],
)
def test_what_a_late_look_does(missed: str, late: float, fires: bool) -> None:
    """A tick counts for a minute; after that it is missed: skipped, or caught up once within a day."""
    tick = datetime(2027, 1, 1, tzinfo=UTC)
    verdict = decide(when_of(300), missed, tick, tick + timedelta(seconds=late))  # type: ignore[arg-type]
    assert verdict.fires is fires
    assert verdict.next_at > tick + timedelta(seconds=late)


@pytest.mark.parametrize(
    ("every", "tz", "says"),
    [
        ("0 8 * *", "UTC", "five fields"),
        ("61 * * * *", "UTC", "no cron expression"),
        ("0 0 31 2 *", "UTC", "no cron expression"),
        ("0 0 * 2 mon#6", "UTC", "no cron expression"),
        ("", "UTC", "no cron expression"),
        ("* " * 200, "UTC", "no cron expression"),
        (0.5, "UTC", "seconds"),
        (float("nan"), "UTC", "seconds"),
        (None, "UTC", "seconds"),
        (60, "Europe/Atlantis", "no time zone"),
        (60, "../../etc/passwd", "no time zone"),
        ("0 8 * * *", "", "no time zone"),
    ],
)
def test_what_can_never_tick_is_refused_with_a_reason(every: object, tz: str, says: str) -> None:
    """A typed error that says what would be right."""
    with pytest.raises(InvalidOption, match=says):
        when_of(every, tz)
