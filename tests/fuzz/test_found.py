"""Whatever the fuzzer has once found, and the seeds it starts from, go through the same readers for ever."""

from __future__ import annotations

import pytest

from tests.fuzz.reader import FOUND
from tests.fuzz.table import READERS

INPUTS = sorted(place for place in FOUND.glob("*/*") if place.is_file())


@pytest.mark.parametrize("place", INPUTS, ids=lambda place: f"{place.parent.name}/{place.name}")
def test_what_once_broke_a_promise_does_so_no_more(place: object) -> None:
    """The smallest input of each kind, named by what it shows."""
    READERS[place.parent.name].read(place.read_bytes())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", READERS)
def test_a_reader_takes_its_seeds_and_nothing_at_all(name: str) -> None:
    """A fuzzer that starts from inputs that fail would find nothing else."""
    assert READERS[name].seeds
    for data in (*READERS[name].seeds, b"", b"\0", b"\xff\xfe"):
        READERS[name].read(data)
