"""Output of programs is cut into lines."""

from __future__ import annotations

import pytest

from holdfast.runlog.output import CHARS_KEPT_MAX, LineSplitter
from holdfast.runlog.text import CutText


def lines_of(*pieces: bytes | str) -> list[str]:
    found: list[str] = []
    splitter = LineSplitter(found.append)
    for piece in pieces:
        splitter.feed(piece)
    splitter.end()
    return found


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b"one\ntwo\n"], ["one", "two"]),
        ([b"o", b"ne\r\nt", b"wo"], ["one", "two"]),
        ([b"caf\xc3", b"\xa9\n"], ["café"]),
        ([b"\xff\xfe broken\n"], ["\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} broken"]),
        ([b"cut off \xc3"], ["cut off \N{REPLACEMENT CHARACTER}"]),
        ([b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07text\n"], ["red text"]),
        ([b" 10%\r 20%\r100%\n"], ["100%"]),
        ([b" 10%\r", b" 20%\r", b"done\n"], ["done"]),
        ([b"\n  \n\nend"], ["end"]),
        (["text ", "too\n"], ["text too"]),
    ],
)
def test_pieces_become_the_lines_that_a_terminal_would_show(pieces: list[bytes | str], expected: list[str]) -> None:
    """Whatever the pieces, the bytes, the colours and the progress bars."""
    assert lines_of(*pieces) == expected


def test_a_line_that_never_ends_stays_bounded_and_is_counted() -> None:
    """Its beginning is kept, the rest is only counted."""
    (line,) = lines_of(*[b"x" * 1_000_000] * 10, b"\n")
    assert isinstance(line, CutText) and len(line) == CHARS_KEPT_MAX and line.cut == 10_000_000 - CHARS_KEPT_MAX


@pytest.mark.case("D37")
def test_the_lines_of_a_private_key_go_with_its_first() -> None:
    """Only the first line of a key looks like one."""
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabcdefgh\n-----END RSA PRIVATE KEY-----\nafter\n"
    assert lines_of(key) == ["-----BEGIN RSA PRIVATE KEY-----", "after"]
