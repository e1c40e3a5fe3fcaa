"""The figures of a campaign of chaos, as a table in docs/reliability.md."""

from __future__ import annotations

from typing import NamedTuple

from tools import pages

COLUMNS = (
    *("store", "seed", "troubles", "acknowledged", "refused calls", "runs", "all ended after", "ended as", "most memory"),
    "broken promises",
)


class Round(NamedTuple):
    kind: str
    seed: int
    seconds: float
    acknowledged: int
    refused: int
    runs: int
    troubles: dict[str, int]
    settled_after: float
    most_mb: float
    """Of memory, that any of the processes took."""
    states: dict[str, int]
    wrongs: int

    def told(self) -> str:
        return (
            f"  {self.acknowledged} jobs acknowledged, {self.refused} calls refused, {self.runs} runs\n"
            f"  troubles {self.troubles}\n"
            f"  {self.settled_after:.1f} s later: {self.states}; at most {self.most_mb:.0f} MB"
        )

    def row(self) -> str:
        ended = ", ".join(f"{count} {state}" for state, count in self.states.items())
        troubles = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.troubles.items())
        settled = f"{self.settled_after:.0f} s"
        counts = (self.acknowledged, self.refused, self.runs)
        cells = (self.kind, self.seed, troubles, *counts, settled, ended, f"{self.most_mb:.0f} MB", self.wrongs)
        return f"| {' | '.join(str(cell) for cell in cells)} |"


def table(rounds: list[Round]) -> str:
    return "\n".join(
        [
            f"{pages.where_and_when()}; rounds of {rounds[0].seconds:.0f} s.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            "|---" * len(COLUMNS) + "|",
            *(one.row() for one in rounds),
        ]
    )


def written(rounds: list[Round]) -> None:
    pages.written("chaos", table(rounds))
