"""Names of the same vulnerability, joined into groups whatever order, circle or repetition they come in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

GROUP_NAMES_MAX = 256
"""A record that would join more than this is not believed: it would fold unrelated vulnerabilities into one."""


class AliasGroups:
    def __init__(self) -> None:
        self._above: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    def join(self, name: str, aliases: Iterable[str]) -> None:
        for alias in aliases:
            one, other = self._top(name), self._top(alias)
            if one == other:
                continue
            size = self._sizes.get(one, 1) + self._sizes.get(other, 1)
            if size <= GROUP_NAMES_MAX:
                self._above[other] = one
                self._sizes[one] = size

    def members(self) -> Iterator[tuple[str, int]]:
        """(name, number of its group), for every group of more than one."""
        groups: dict[str, list[str]] = defaultdict(list)
        for name in self._above:
            groups[self._top(name)].append(name)
        for number, (top, names) in enumerate(groups.items(), 1):
            yield top, number
            yield from ((name, number) for name in names if name != top)

    def _top(self, name: str) -> str:
        while (above := self._above.get(name)) is not None:
            self._above[name] = self._above.get(above, above)
            name = above
        return name
