"""What pages remember of their counts: for whom, for how long, and who waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from holdfast.web.dashboard import memory
from holdfast.web.dashboard.memory import FRESH_SECONDS, OLDEST_SECONDS, Memory, Subject

ACME, ZOE, ALL = (Subject("counts", tenant) for tenant in ("acme", "zoe", None))


class Times:
    """A clock that is moved by hand, and a count that tells how often it was asked."""

    def __init__(self) -> None:
        self.now = 100.0
        self.counted = 0

    def clock(self) -> float:
        return self.now

    async def count(self) -> int:
        self.counted += 1
        return self.counted


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def remembered(times: Times) -> Memory:
    return Memory(times.clock, afterwards=0.0)


def always(value: str) -> Callable[[], Awaitable[str]]:
    async def count() -> str:
        return value

    return count


async def test_nobody_sees_what_was_counted_for_another(remembered: Memory) -> None:
    """Neither another organization, nor all of them, nor another page of the same."""
    subjects = [ACME, ZOE, ALL, ACME._replace(part="24h"), ACME._replace(name="loads")]
    for number, subject in enumerate(subjects):
        await remembered.get(subject, always(str(number)))
    found = [await remembered.get(subject, always("counted again")) for subject in subjects]
    assert found == ["0", "1", "2", "3", "4"]


async def test_a_young_figure_is_shown_without_counting(remembered: Memory, times: Times) -> None:
    """However many ask."""
    assert [await remembered.get(ACME, times.count) for _ in range(5)] == [1] * 5
    times.now += FRESH_SECONDS - 0.1
    assert await remembered.get(ACME, times.count) == 1
    await remembered.settled()
    assert times.counted == 1


async def test_an_older_figure_is_shown_while_it_is_counted_anew(remembered: Memory, times: Times) -> None:
    """Once for all who ask; the next one sees the new figure."""
    await remembered.get(ACME, times.count)
    times.now += FRESH_SECONDS
    assert [await remembered.get(ACME, times.count) for _ in range(3)] == [1, 1, 1]
    await remembered.settled()
    assert (await remembered.get(ACME, times.count), times.counted) == (2, 2)


async def test_a_figure_that_is_too_old_is_shown_to_nobody(remembered: Memory, times: Times) -> None:
    """Whoever asks waits for the count."""
    await remembered.get(ACME, times.count)
    times.now += OLDEST_SECONDS
    assert await remembered.get(ACME, times.count) == 2


async def test_those_who_ask_at_once_wait_for_one_count(remembered: Memory, times: Times) -> None:
    """The database is asked once."""
    assert await asyncio.gather(*(remembered.get(ACME, times.count) for _ in range(5))) == [1] * 5


async def test_a_quick_look_is_followed_by_the_whole_count(remembered: Memory, times: Times) -> None:
    """The first one sees what was found quickly, those after him all of it."""
    looks = [await remembered.get(ACME, always("all"), always("some")) for _ in range(2)]
    await remembered.settled()
    assert (looks, await remembered.get(ACME, always("later"), always("some"))) == (["some", "some"], "all")


async def test_what_was_forgotten_is_counted_anew(remembered: Memory, times: Times) -> None:
    """Of the organization that something was done for, and of all; the others keep theirs."""
    for subject in (ACME, ZOE, ALL):
        await remembered.get(subject, always("before"))
    remembered.forget("acme")
    found = [await remembered.get(subject, always("after")) for subject in (ACME, ZOE, ALL)]
    assert found == ["after", "before", "after"]
    remembered.forget(None)
    assert await remembered.get(ZOE, always("after")) == "after"


async def test_a_count_that_began_before_a_change_is_not_remembered(remembered: Memory, times: Times) -> None:
    """It may have looked before: it ends, and nobody is shown what it found."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "before"

    waiting = asyncio.ensure_future(remembered.get(ACME, slow))
    await begun.wait()
    remembered.forget("acme")
    assert await remembered.get(ACME, always("after")) == "after"
    go_on.set()
    assert await waiting == "before"
    assert await remembered.get(ACME, always("later")) == "after"


async def test_a_count_that_fails_behind_the_scenes_is_tried_again(remembered: Memory, times: Times) -> None:
    """The old figure is shown while it is young enough; then whoever asks is told."""

    async def fails() -> int:
        raise ConnectionError("away")

    await remembered.get(ACME, times.count)
    times.now += FRESH_SECONDS
    assert await remembered.get(ACME, fails) == 1
    await remembered.settled()
    assert await remembered.get(ACME, fails) == 1
    await remembered.settled()
    times.now += OLDEST_SECONDS
    with pytest.raises(ConnectionError, match="away"):
        await remembered.get(ACME, fails)
    assert await remembered.get(ACME, times.count) == 2


async def test_no_more_is_remembered_than_there_is_room_for(
    remembered: Memory, times: Times, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted longest ago goes first."""
    monkeypatch.setattr(memory, "ENTRIES_MAX", 2)
    for subject in (ACME, ZOE, ALL):
        await remembered.get(subject, always("before"))
    found = [await remembered.get(subject, always("after")) for subject in (ALL, ZOE, ACME)]
    assert found == ["before", "before", "after"]
