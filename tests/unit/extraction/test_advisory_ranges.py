"""Ranges of the OSV schema, against a reference that paints them on a ladder of versions known to be in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.extraction.advisories.errors import NotComparable
from holdfast.extraction.advisories.ranges import Affected, Kind, Range, Verdict, judge
from holdfast.extraction.advisories.versions import fold_version
from tests.support.fuzzing import examples

LADDERS = {
    "npm": ["0.0.1", "0.9.0-rc.1", "0.9.0", "1.0.0-a", "1.0.0-a.2", "1.0.0-a.10", "1.0.0", "1.0.2", "1.0.10", "2.0.0"],
    "PyPI": ["0.1", "0.9.dev1", "0.9rc1", "0.9", "1.0a1", "1.0", "1.0.post1", "1.2", "1.10", "1!0.5"],
    "Maven": ["0.1", "1.0-alpha1", "1.0-rc1", "1.0-SNAPSHOT", "1.0", "1.0-sp", "1.0.1", "2.0-beta9", "2.0", "10"],
}
RUNGS = 10
START = -1
Event = tuple[Kind, int]

events = st.lists(
    st.tuples(st.sampled_from(["introduced", "fixed", "last_affected", "limit"]), st.integers(START, RUNGS - 1)),
    min_size=1,
    max_size=7,
)


def painted(told: list[Event]) -> list[bool]:
    """Each event, lowest first, repaints the ladder from its rung on."""
    ladder = [False] * RUNGS
    for kind, rung in sorted(told, key=lambda event: event[1]):
        if kind == "introduced":
            ladder[max(rung, 0) :] = [True] * (RUNGS - max(rung, 0))
        elif kind in ("fixed", "last_affected"):
            begin = rung + (kind == "last_affected")
            ladder[begin:] = [False] * (RUNGS - begin)
    limits = [rung for kind, rung in told if kind == "limit"]
    return [hit and (not limits or at < max(limits)) for at, hit in enumerate(ladder)]


@settings(max_examples=examples(200), deadline=None)
@given(
    ecosystem=st.sampled_from(sorted(LADDERS)),
    ranges=st.lists(events, min_size=1, max_size=3),
    listed=st.sets(st.integers(0, RUNGS - 1), max_size=2),
    at=st.integers(0, RUNGS - 1),
)
def test_a_version_is_affected_where_the_painted_ladder_says_so(
    ecosystem: str, ranges: list[list[Event]], listed: set[int], at: int
) -> None:
    """Several ranges, several intervals, pre-releases, limits and events in any order come out as the reference has them."""
    ladder = LADDERS[ecosystem]
    told = [[(kind, rung if kind == "introduced" else max(rung, 0)) for kind, rung in part] for part in ranges]
    written = [Range(False, [(kind, "0" if rung == START else ladder[rung]) for kind, rung in part]) for part in told]
    versions = [fold_version(ecosystem, ladder[rung]) for rung in listed]
    expected = at in listed or any(painted(part)[at] for part in told)
    assert judge(Affected(versions, written), ecosystem, ladder[at]).affected == expected


@settings(max_examples=examples(100), deadline=None)
@given(told=events, at=st.integers(0, RUNGS - 1))
def test_the_fixed_version_is_the_next_one_above(told: list[Event], at: int) -> None:
    """What is proposed as fixed is above the version, and no nearer fix is passed over."""
    ladder = LADDERS["npm"]
    told = [(kind, rung if kind == "introduced" else max(rung, 0)) for kind, rung in told]
    written = Range(True, [(kind, "0" if rung == START else ladder[rung]) for kind, rung in told])
    above = sorted(rung for kind, rung in told if kind == "fixed" and rung > at)
    verdict = judge(Affected([], [written]), "npm", ladder[at])
    assert verdict.fixed_in == ([ladder[above[0]]] if verdict.affected and above else [])


def test_one_range_that_certainly_holds_outweighs_one_that_cannot_be_compared() -> None:
    """An unclear part does not hide what is clear."""
    clear, unclear = Range(True, [("introduced", "0")]), Range(True, [("introduced", "whenever")])
    assert judge(Affected([], [unclear, clear]), "npm", "1.0.0") == Verdict(True, [])
    with pytest.raises(NotComparable):
        judge(Affected([], [unclear]), "npm", "1.0.0")


def test_a_limit_of_a_star_is_no_limit() -> None:
    """The schema's sign for infinity is understood."""
    assert judge(Affected([], [Range(True, [("introduced", "0"), ("limit", "*")])]), "npm", "9.9.9").affected


def test_a_local_build_of_a_python_version_shares_its_advisories() -> None:
    """`2.0.0+cu118` is 2.0.0, and so is not beyond a last affected 2.0.0."""
    affected = Affected([], [Range(False, [("introduced", "1"), ("last_affected", "2.0.0")])])
    assert judge(affected, "PyPI", "2.0.0+cu118").affected
