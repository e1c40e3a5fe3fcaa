"""Output of programs, cut into lines: bounded, whatever comes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable

from holdfast.handover import Handover
from holdfast.runlog.text import CutText, utf8_size

CHARS_KEPT_MAX = 65_536
"""Of a line that never ends; the rest is only counted."""
KEY_LINES_MAX = 200

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\)?|[@-Z\\-_])")
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")


class LineSplitter:
    """Bytes or text in any pieces become lines as a terminal would show them, without colours. From any thread."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pieces: Handover[str | None] = Handover(self._cut_up)
        """None for an end."""
        self._begun: list[str] = []
        self._chars = 0
        self._cut = 0
        self._returned = False
        self._key_lines = 0

    def feed(self, data: bytes | str) -> None:
        self._pieces.give(data if isinstance(data, str) else self._decode(data))

    def end(self) -> None:
        """What was begun and has no line end."""
        self._pieces.give(None)

    def _cut_up(self, text: str | None) -> None:
        if text is None:
            self._add(self._decode(b"", True))
            if self._begun:
                self._end_line()
            return
        *ended, rest = text.split("\n")
        for piece in ended:
            self._add(piece)
            self._end_line()
        if rest:
            self._add(rest)

    def _add(self, piece: str) -> None:
        shown = piece.rstrip("\r")
        if shown and (self._returned or "\r" in shown):  # a progress bar: only what it shows last
            self._begun, self._chars, self._cut = [], 0, 0
            self._returned, shown = False, shown.rpartition("\r")[2]
        self._returned = self._returned or piece.endswith("\r")
        piece = shown
        room = max(0, CHARS_KEPT_MAX - self._chars)
        if len(piece) > room:
            self._cut += utf8_size(piece[room:])
            piece = piece[:room]
        if piece:
            self._begun.append(piece)
            self._chars += len(piece)

    def _end_line(self) -> None:
        text, cut = "".join(self._begun), self._cut
        self._begun, self._chars, self._cut, self._returned = [], 0, 0, False
        if "\x1b" in text:
            text = _ESCAPE.sub("", text)
        if self._is_inside_a_key(text):
            return
        if text.strip():
            self._emit(CutText.of(text, cut) if cut else text)

    def _is_inside_a_key(self, text: str) -> bool:
        """Of a private key only the first line can be told by itself: the others go with it."""
        if self._key_lines:
            self._key_lines = 0 if "-----END " in text else self._key_lines - 1
            return True
        if "-----BEGIN " in text and "-----END " not in text and _KEY_BEGINS.search(text):
            self._key_lines = KEY_LINES_MAX
        return False
