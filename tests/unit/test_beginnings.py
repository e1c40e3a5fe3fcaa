"""Where a claim on PostgreSQL begins: at the front, unless that has become slow."""

from __future__ import annotations

import pytest

from holdfast.store.postgres import beginnings
from holdfast.store.postgres.beginnings import Beginnings


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that Beginnings sees, in its only element."""
    moment = [100.0]
    monkeypatch.setattr(beginnings.time, "monotonic", lambda: moment[0])
    return moment


def test_a_quick_look_leaves_the_beginning_at_the_front(now: list[float]) -> None:
    """Then the most urgent job is the next one, always."""
    places = Beginnings()
    places.learn("mail", None, "job-1", 0.003, 100)
    assert places.of(["mail"]) == [None]


def test_after_a_slow_look_the_next_claims_begin_behind_what_was_found(now: list[float]) -> None:
    """The walk over what cannot leave the index is not made again at once; other queues are not touched by it."""
    places = Beginnings()
    places.learn("mail", None, "job-1", 0.1, 100)
    assert places.of(["mail", "other"]) == ["job-1", None]
    places.learn("mail", "job-1", "job-2", 0.001, 100)
    assert places.of(["mail"]) == ["job-2"]


def test_the_front_is_looked_at_again_after_a_few_times_what_the_look_took(now: list[float]) -> None:
    """A more urgent job that came meanwhile waits for that long at the most."""
    places = Beginnings()
    places.learn("mail", None, "job-1", 0.1, 100)
    now[0] += 0.39
    places.learn("mail", "job-1", "job-2", 0.1, 100)
    assert places.of(["mail"]) == ["job-2"]
    now[0] += 0.02
    assert places.of(["mail"]) == [None]


def test_the_front_is_looked_at_once_a_second_however_slow_that_is(now: list[float]) -> None:
    """Urgent work must not wait for minutes because a look takes long."""
    places = Beginnings()
    places.learn("mail", None, "job-1", 30.0, 100)
    now[0] += 1.01
    assert places.of(["mail"]) == [None]


def test_a_claim_that_was_not_filled_goes_back_to_the_front(now: list[float]) -> None:
    """There may be work before the place where it began."""
    places = Beginnings()
    places.learn("mail", None, "job-1", 0.1, 100)
    places.learn("mail", "job-1", None, 0.1, 3)
    assert places.of(["mail"]) == [None]
