"""Maven's order of versions, as Maven 3.9 sorts them: numbers, well-known words, and the hyphens between them."""

from __future__ import annotations

import re
from functools import total_ordering
from typing import NamedTuple

_PIECE = re.compile(r"([.-]?)([0-9]+|[^0-9.-]+|(?=[.-]))")
_RELEASE = 5
_WORDS = {"alpha": 0, "beta": 1, "milestone": 2, "rc": 3, "cr": 3, "snapshot": 4, "sp": 6}
_WORDS |= dict.fromkeys(["", "ga", "final", "release"], _RELEASE)
_UNKNOWN = 7
_SHORT = {"a": "alpha", "b": "beta", "m": "milestone"}


class _Token(NamedTuple):
    level: int
    """Hyphens that come before it, or changes between digits and letters, which count as hyphens."""
    is_number: bool
    value: int
    text: str = ""
    """A word that Maven does not know: these are ordered by their letters."""

    @property
    def beside_nothing(self) -> int:
        """1.0 = 1 < 1.1 and 1-rc < 1 = 1-final < 1-sp."""
        nothing = 0 if self.is_number else _RELEASE
        return (self.value > nothing) - (self.value < nothing)

    def beside(self, other: _Token) -> int:
        """A word comes before whatever has more hyphens, and a number after it: 1.x < 1-1 < 1.1."""
        if self.level != other.level:
            shallow, order = (self, 1) if self.level < other.level else (other, -1)
            return order if shallow.is_number else -order
        return (self > other) - (self < other)


@total_ordering
class MavenVersion:
    def __init__(self, text: str) -> None:
        self._tokens = _trimmed(_tokens(text.lower()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MavenVersion) and self._beside(other) == 0

    def __lt__(self, other: MavenVersion) -> bool:
        return self._beside(other) < 0

    def _beside(self, other: MavenVersion) -> int:
        ours, theirs = self._tokens, other._tokens
        for position in range(max(len(ours), len(theirs))):
            if position >= len(ours):
                order = -theirs[position].beside_nothing
            elif position >= len(theirs):
                order = ours[position].beside_nothing
            else:
                order = ours[position].beside(theirs[position])
            if order:
                return order
        return 0


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    for match in _PIECE.finditer(text):
        separator, piece = match.groups()
        level = int(separator != "." and bool(tokens))
        if not piece or piece.isdigit():
            tokens.append(_Token(level, True, int(piece or 0)))
            continue
        following = text[match.end() : match.end() + 1]
        if tokens and following not in (".", "-"):
            level = 1  # 1.rc1 is 1-rc1, and 1.rc is 1-rc, but the word in 1.rc.1 stays behind its dot
        if following.isdigit():
            piece = _SHORT.get(piece, piece)
        value = _WORDS.get(piece, _UNKNOWN)
        tokens.append(_Token(level, False, value, piece if value == _UNKNOWN else ""))
    return tokens


def _trimmed(tokens: list[_Token]) -> list[_Token]:
    """Without what says nothing, zeros and `final`, at the end and before each hyphen: 1.0.0-rc = 1-rc."""
    kept: list[_Token] = []
    for token in reversed(tokens):
        if token.beside_nothing or (kept and not kept[-1].level):
            kept.append(token)
        elif kept:
            kept[-1] = kept[-1]._replace(level=kept[-1].level + token.level)
    return kept[::-1]
