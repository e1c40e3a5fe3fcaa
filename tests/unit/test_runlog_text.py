"""Lines of a log become storable: copied when they are said, redacted and cut once, together with their neighbours."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import redact as redaction
from holdfast.redact import add_pattern
from holdfast.runlog.text import Limits, Said, cleaned, said, sendable

LIMITS = Limits(line_bytes=400, metadata_bytes=400)
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
URL = f"https://x-access-token:{TOKEN}@github.com/acme/app.git"

pieces = st.sampled_from(
    ["authorization:", "Bearer", "basic", "basicbasic dXNlcjpw", " ", "\n", "=", TOKEN, URL, "eyJhbGciOi", ".abc",
     "plain", "é", "\0", "\ud800", '"', "20", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----",
     "x" * 390, "dXNlcjpwYXNz", "session_token", "abcdefgh1234"]
)  # fmt: skip
texts = st.lists(pieces, max_size=5).map("".join)
values = st.one_of(texts, st.integers(), st.floats(), st.none(), st.booleans(), st.lists(texts, max_size=2))
metadata = st.dictionaries(st.one_of(st.sampled_from(["password", "url", "n"]), texts), values, max_size=3)
calls = st.tuples(texts, st.one_of(st.none(), texts), st.one_of(st.none(), st.floats()), metadata)


def line(message: object, step: object = None, duration_ms: object = None, metadata: dict[str, Any] | None = None) -> Said:
    return said("info", message, step, duration_ms, metadata, LIMITS)


@pytest.mark.case("D37")
@given(st.lists(calls, max_size=20))
@example([("basic", None, None, {}), ("basicbasic dXNlcjpw", None, None, {})])
def test_lines_cleaned_together_are_as_clean_as_each_alone(all_calls: list[Any]) -> None:
    """Looking through many lines at once never lets a secret pass that would be found in the line by itself."""
    lines = [line(*call) for call in all_calls]
    alone = [cleaned([one], LIMITS)[0] for one in lines]
    assert cleaned(lines, LIMITS) == alone
    assert all(TOKEN not in repr(one) for one in alone)


@pytest.mark.case("D37")
def test_a_pattern_of_the_user_is_tried_on_each_line_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may mean the beginning of a line."""
    monkeypatch.setattr(redaction, "_user_patterns", ())
    add_pattern("^pin .*$")
    assert [one.message for one in cleaned([line("hello"), line("pin 1234")], LIMITS)] == ["hello", "[REDACTED]"]


def test_what_was_logged_is_what_it_was_then() -> None:
    """A task may go on changing what it has logged."""
    inner = [1]
    spoken = line("now", metadata={"list": inner, "plain": 1})
    inner.append(2)
    assert cleaned([spoken], LIMITS)[0].metadata == {"list": [1], "plain": 1}


def test_a_long_line_is_cut_and_says_by_how_much() -> None:
    """In bytes, whatever its characters take."""
    (short, long, wide) = cleaned([line("x" * 400), line("x" * 5000), line("é" * 5000)], LIMITS)
    assert short.message == "x" * 400
    assert long.message == "x" * 400 + " … (4600 bytes cut)"
    assert wide.message == "é" * 200 + " … (9600 bytes cut)"


@pytest.mark.case("D37")
def test_a_huge_line_that_shrinks_when_it_is_redacted_ends_with_no_half_secret() -> None:
    """It was cut before it was redacted, so its end may be in the middle of one."""
    keys = f"-----BEGIN PRIVATE KEY-----{'A' * 600}-----END PRIVATE KEY----- "
    url = "https://app:correct-horse-battery-staple@example.org/"
    message = cleaned([line(keys.ljust(770, "x") + url + "y" * 1000)], LIMITS)[0].message
    assert message.startswith("[REDACTED]") and "correct" not in message


def test_metadata_that_is_too_large_says_so() -> None:
    """It is left out as a whole: half a document is no document."""
    (one,) = cleaned([line("m", metadata={"large": "y" * 1000})], LIMITS)
    assert one.metadata == {"cut": "metadata of 1012 bytes, 400 are kept at most"}


def test_a_huge_line_does_not_wait_in_memory() -> None:
    """What will not be kept is let go of at once."""
    assert len(line("x" * 1_000_000).message) == 800


@given(calls)
def test_a_line_from_an_isolated_process_is_cleaned_as_any_other(call: Any) -> None:
    """What is sent as JSON comes out as if it had been said in the worker."""
    import msgspec

    spoken = line(*call)
    sent = Said(*msgspec.json.decode(msgspec.json.encode(sendable(spoken, LIMITS))))
    assert cleaned([sent], LIMITS)[0] == cleaned([spoken], LIMITS)[0]


def test_what_was_cut_is_counted_as_it_would_have_been_stored() -> None:
    """The same number whether the line was said in the worker or came from an isolated process."""
    spoken = line("\x00" + "x" * 500)
    assert cleaned([sendable(spoken, LIMITS)], LIMITS)[0].message == cleaned([spoken], LIMITS)[0].message
