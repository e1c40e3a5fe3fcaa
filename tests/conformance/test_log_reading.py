"""Reading a log: by number, from either end, through filters; and knowing when there is no more to come."""

from __future__ import annotations

import pytest

from holdfast.clock import ManualClock
from holdfast.ids import new_job_id, new_run_id
from holdfast.store.protocol import Leaving, LogFilter, Store
from tests.conformance.scene import LEASE, append, claim, complete, insert, leave, line, log_of, reap, start

HOSTILE = [
    "100 % done",
    "100 percent done",
    "snake_case",
    "snakeXcase",
    "it's 'quoted'",
    'say "hi"',
    "back\\slash",
    "party 🎉 time",
    "<b>bold</b>",
    "$1 {name} :now ?",
    "Straße ÉCLAIR",
]


async def numbers(store: Store, run: object, **options: object) -> list[int]:
    return [one.no for one in await log_of(store, run, **options)]  # type: ignore[arg-type]


async def test_lines_are_read_by_number_between_cursors(store: Store) -> None:
    """In the order of their numbers, however they were written, and no more than asked for."""
    run = await start(store)
    await append(store, run, *(line(run, no) for no in (3, 1, 2)))
    await append(store, run, *(line(run, no) for no in (10, 4)))
    assert await numbers(store, run) == [1, 2, 3, 4, 10]
    assert await numbers(store, run, after=2, limit=2) == [3, 4]
    assert await numbers(store, run, before=4) == [1, 2, 3]
    assert await numbers(store, run, after=1, before=4) == [2, 3]
    assert await numbers(store, run, after=10) == []
    assert await numbers(store, run, after=2**40) == [] == await numbers(store, run, before=1)
    assert await numbers(store, run, before=2**40, limit=0) == []


async def test_the_newest_lines_come_in_order_too(store: Store) -> None:
    """The last ones that match, or the last ones before a cursor: for a page that is read backwards."""
    run = await start(store)
    await append(store, run, *(line(run, no, level="error" if no % 2 else "info") for no in range(1, 10)))
    assert await numbers(store, run, newest=True, limit=3) == [7, 8, 9]
    assert await numbers(store, run, newest=True, limit=3, before=7) == [4, 5, 6]
    assert await numbers(store, run, newest=True, limit=3, after=7) == [8, 9]
    assert await numbers(store, run, newest=True, limit=2, levels=("error",)) == [7, 9]


async def test_lines_are_filtered_by_level_and_step(store: Store) -> None:
    """Every filter that is set must match."""
    run = await start(store)
    said = [("info", None), ("info", "pack"), ("warning", "pack"), ("error", "send"), ("success", "send")]
    await append(store, run, *(line(run, no, level=level, step=step) for no, (level, step) in enumerate(said, 1)))
    assert await numbers(store, run, levels=("info",)) == [1, 2]
    assert await numbers(store, run, levels=("warning", "error")) == [3, 4]
    assert await numbers(store, run, step="pack") == [2, 3]
    assert await numbers(store, run, step="pack", levels=("warning",)) == [3]
    assert await numbers(store, run, step="send", after=4) == [5]
    assert await numbers(store, run, step="") == [] == await numbers(store, run, levels=("nothing",))


@pytest.mark.case("D38")
@pytest.mark.parametrize("message", HOSTILE)
async def test_a_search_takes_every_character_literally(store: Store, message: str) -> None:
    """Wildcards, quotes and placeholders are text like any other; of these messages each finds itself alone."""
    run = await start(store)
    await append(store, run, *(line(run, no, text) for no, text in enumerate(HOSTILE, 1)))
    assert [one.message for one in await log_of(store, run, search=message)] == [message]


@pytest.mark.parametrize("search", ["%", "_", "\\", "'", '"', "🎉", "$1", "?"])
async def test_a_search_for_a_single_odd_character_finds_only_that(store: Store, search: str) -> None:
    """It matches where it stands and nowhere else."""
    run = await start(store)
    await append(store, run, *(line(run, no, text) for no, text in enumerate(HOSTILE, 1)))
    found = [one.message for one in await log_of(store, run, search=search)]
    assert found == [text for text in HOSTILE if search in text]


async def test_a_search_looks_at_the_values_of_metadata_and_past_case(store: Store) -> None:
    """In the message or in what was said beside it; names of values and the marks of JSON are not searched."""
    run = await start(store)
    await append(
        store,
        run,
        line(run, 1, "Charged the Card"),
        line(run, 2, "done", metadata={"order": "O-17", "n": 4711, "who": {"name": "Ana"}}),
        line(run, 3, "done", metadata={"order": None}),
    )
    assert await numbers(store, run, search="cHARGED the") == [1]
    assert await numbers(store, run, search="o-17") == [2] == await numbers(store, run, search="471")
    assert await numbers(store, run, search="ana") == [2]
    assert await numbers(store, run, search="order") == []
    assert await numbers(store, run, search="DONE", after=2) == [3]


async def test_a_run_that_wrote_nothing_has_an_empty_log(store: Store) -> None:
    """So has a run that never was, and a word that is no run id."""
    run = await start(store)
    assert await log_of(store, run) == [] == await log_of(store, run, newest=True)
    for unknown in (new_run_id(), "nonsense"):
        assert await store.log_read(unknown, LogFilter(), limit=10) == []


async def test_a_filter_sees_one_run_only(store: Store) -> None:
    """The lines of another run that match as well are not mixed in."""
    one, other = await start(store), await start(store)
    await append(store, one, line(one, 1, "same"))
    await append(store, other, line(other, 1, "same"), line(other, 2, "same"))
    assert await numbers(store, one, search="same") == [1]
    assert await numbers(store, other, search="same") == [1, 2]


# -- may more come? --------------------------------------------------------------------------------------------------------


async def is_open(store: Store, job_id: str, run_id: str) -> bool:
    return await store.run_open([(job_id, run_id)]) == {run_id}


@pytest.mark.parametrize("end", ["complete", *Leaving])
async def test_a_run_is_open_until_it_ends(store: Store, end: str) -> None:
    """From the moment it is queued; whatever becomes of its job then, this run says no more."""
    job = await insert(store)
    assert await is_open(store, job.id, job.run_id)
    (run,) = (await claim(store)).jobs
    assert run.run_id == job.run_id
    assert await is_open(store, run.id, run.run_id)
    await (complete(store, run) if end == "complete" else leave(store, run, Leaving(end)))
    assert not await is_open(store, run.id, run.run_id)
    following = (await store.job_get(run.id)).run_id
    assert await is_open(store, run.id, following) == (following != run.run_id)


async def test_a_run_that_was_reaped_is_closed_with_its_last_line(store: Store, clock: ManualClock) -> None:
    """Whoever is told that it is not open finds the reaper's line there already."""
    run = await start(store)
    clock.advance(LEASE + 1)
    await reap(store)
    assert not await is_open(store, run.id, run.run_id)
    assert len(await log_of(store, run)) == 1


async def test_many_runs_are_asked_for_at_once(store: Store) -> None:
    """Only those that are open are answered; what never was is not."""
    one, other = await start(store), await start(store)
    queued = await insert(store)
    await complete(store, other)
    asked = [(one.id, one.run_id), (other.id, other.run_id), (queued.id, queued.run_id), (one.id, other.run_id)]
    asked += [(new_job_id(), new_run_id()), ("nonsense", "nonsense")]
    assert await store.run_open(asked) == {one.run_id, queued.run_id}
    assert await store.run_open([]) == set()
