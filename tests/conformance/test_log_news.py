"""New lines of many runs at once, as the hub of followers reads them."""

from __future__ import annotations

from holdfast.ids import new_run_id
from holdfast.store.protocol import Store
from tests.conformance.scene import append, line, start


async def test_new_lines_of_many_runs_come_in_one_answer(store: Store) -> None:
    """Each run from its own number on, in order, no more than the limit of each; unknown runs have none."""
    first, second, third = [await start(store) for _ in range(3)]
    for run in (first, second, third):
        await append(store, run, *[line(run, no, f"{no}") for no in range(1, 6)])
    cursors = [(first.run_id, 0), (second.run_id, 3), (third.run_id, 5), (new_run_id(), 0), ("no uuid", 0)]
    found: dict[str, list[int]] = {}
    for one in await store.log_read_new(cursors, limit=4):
        found.setdefault(one.run_id, []).append(one.no)
    assert found == {first.run_id: [1, 2, 3, 4], second.run_id: [4, 5]}


async def test_nobody_asked_is_nothing_found(store: Store) -> None:
    """Without runs there is no answer."""
    assert await store.log_read_new([], limit=10) == []
