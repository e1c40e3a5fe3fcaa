"""Whatever is handed in as a setting, an argument, a schedule or a sealed value: taken as it is meant, or refused by name."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, codec, sealing
from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError, InvalidArguments, InvalidOption, PayloadTooLarge, SealedUnreadable
from holdfast.settings import _FIELDS, load_settings
from holdfast.ticks import decide, when_of
from tests.support.fuzzing import examples

VARIABLES = sorted({name for rule in _FIELDS.values() if rule is not None for name in rule.env})
SECRET = ("SECRET", "KEY", "DATABASE_URL", "LISTEN_URL")
plain_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
odd_words = st.sampled_from(
    ["nan", "inf", "-1", "0", "1e400", "１２", "true", "None", "postgresql://u:p@h/d", "10.0.0.0/8", "a,b"]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module", autouse=True)
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No settings file and no settings of this machine."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("nowhere"))
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with mock.patch.dict(os.environ, kept, clear=True):
        yield
    os.chdir(before)


@settings(max_examples=examples(300), deadline=None)
@given(variable=st.sampled_from(VARIABLES), text=plain_text | odd_words | st.integers().map(str) | st.floats().map(str))
def test_any_text_in_any_variable_is_taken_or_refused_by_its_name(variable: str, text: str) -> None:
    """With nothing else than a ConfigError, and no secret is quoted."""
    with mock.patch.dict(os.environ, {variable: text}):
        try:
            load_settings()
        except ConfigError as error:
            assert variable in str(error) or "lease" in str(error) or "claim" in str(error)
            if any(word in variable for word in SECRET) and len(text) > 8:
                assert text not in str(error)


@settings(max_examples=examples(300), deadline=None)
@given(field=st.sampled_from(sorted(_FIELDS)), value=anything)
def test_any_value_of_a_setting_in_code_is_taken_or_refused(field: str, value: Any) -> None:
    """Of whatever type."""
    try:
        load_settings(**{field: value})
    except ConfigError as error:
        assert str(error)


@settings(max_examples=examples(200), deadline=None)
@given(
    plain_text | st.tuples(st.sampled_from(["sqlite:", "postgresql:", "postgres://", "sqlite:///"]), plain_text).map("".join)
)
def test_any_text_is_the_address_of_a_database_or_is_refused(text: str) -> None:
    """And what is shown of it has no password."""
    try:
        found = parse_database_url(text)
    except ConfigError:
        return
    assert found.safe


hf = Holdfast("sqlite://")


@hf.task
def take(number: int, name: str = "x", more: dict[str, Any] | None = None) -> None: ...


@settings(max_examples=examples(200), deadline=None)
@given(number=anything, name=anything, more=anything)
def test_arguments_are_refused_at_the_door_or_reach_the_task_as_they_were(number: Any, name: Any, more: Any) -> None:
    """What is accepted comes out of the JSON that is stored, the same."""
    try:
        data = take.bind_arguments((), {"number": number, "name": name, "more": more})
    except (InvalidArguments, PayloadTooLarge):
        return
    assert take.load_arguments(data) == {"number": number, "name": name, "more": more}


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=60) | anything.map(lambda value: repr(value).encode(errors="replace")))
def test_whatever_stands_in_the_database_is_arguments_or_is_refused(data: bytes) -> None:
    """A row that somebody else has written does not bring a worker down."""
    try:
        take.load_arguments(data)
    except InvalidArguments as error:
        assert str(error).startswith("take: ")


@settings(max_examples=examples(200), deadline=None)
@given(anything)
def test_what_can_be_stored_comes_back_and_the_rest_is_refused(value: Any) -> None:
    """NaN, lone surrogates, NUL and endless nesting are refused, never changed in silence."""
    try:
        data = codec.encode(value)
    except codec.NotJson:
        return
    assert codec.decode(data) == value and not (isinstance(value, float) and math.isnan(value))


NOW = datetime(2030, 3, 30, 23, 59, 30, tzinfo=UTC)
cron_field = st.text("0123456789*/-,L#?", max_size=6) | st.sampled_from(
    ["*", "0", "mon", "jan", "1-5", "*/7", "L", "mon#1", "99"]
)
zones = st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kathmandu", "Nowhere/Land", "../etc/passwd", "", "."])


@settings(max_examples=examples(150), deadline=None)
@given(every=st.lists(cron_field, min_size=4, max_size=7).map(" ".join) | plain_text | anything, tz=zones)
def test_any_schedule_has_a_next_tick_or_is_refused(every: Any, tz: str) -> None:
    """Ahead of now, also behind a decision about a tick that was missed."""
    try:
        when = when_of(every, tz)
    except InvalidOption as error:
        assert str(error)
        return
    tick = when.next_after(NOW)
    assert NOW < tick < decide(when, "once", tick, tick).next_at


KEYS = (b"k" * 32, b"o" * 32)


@settings(max_examples=examples(100), deadline=None)
@given(text=st.text(max_size=50), place=st.text(max_size=10), other=st.text(max_size=10), at=st.integers(0, 200))
def test_a_sealed_value_opens_in_its_place_alone_and_unchanged_only(text: str, place: str, other: str, at: int) -> None:
    """One letter changed, another place, or no key: refused."""
    if any("\ud800" <= letter <= "\udfff" for letter in text + place + other):
        return
    sealed = sealing.vault_of(KEYS).seal(text, bound_to=place)
    assert sealing.vault_of(KEYS[::-1]).open(sealed, bound_to=place) == text
    if other != place:
        with pytest.raises(SealedUnreadable):
            sealing.vault_of(KEYS).open(sealed, bound_to=other)
    at = at % len(sealed)
    damaged = sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]
    with pytest.raises(SealedUnreadable):
        sealing.vault_of(KEYS).open(damaged, bound_to=place)


def test_the_last_letter_of_a_sealed_value_counts_too() -> None:
    """Base64 has bits there that say nothing; whoever changes them has changed the value all the same."""
    vault = sealing.vault_of(KEYS)
    for length in range(3):
        sealed = vault.seal("x" * length, bound_to="place")
        letters = sealed.rstrip("=")
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/":
            if other != letters[-1]:
                with pytest.raises(SealedUnreadable):
                    vault.open(letters[:-1] + other + sealed[len(letters) :], bound_to="place")
