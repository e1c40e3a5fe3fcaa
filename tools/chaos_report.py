"""The figures of a campaign of chaos, as a table in docs/reliability.md."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- chaos: written by `python tools/chaos.py --report` -->", "<!-- end of chaos -->"


class Round(NamedTuple):
    kind: str
    seed: int
    seconds: float
    acknowledged: int
    refused: int
    runs: int
    troubles: dict[str, int]
    settled_after: float
    states: dict[str, int]
    wrongs: int

    def told(self) -> str:
        return (
            f"  {self.acknowledged} jobs acknowledged, {self.refused} calls refused, {self.runs} runs\n"
            f"  troubles {self.troubles}\n"
            f"  {self.settled_after:.1f} s later: {self.states}"
        )

    def row(self) -> str:
        ended = ", ".join(f"{count} {state}" for state, count in self.states.items())
        troubles = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self.troubles.items())
        settled = f"{self.settled_after:.0f} s"
        cells = (self.kind, self.seed, troubles, self.acknowledged, self.refused, self.runs, settled, ended, self.wrongs)
        return f"| {' | '.join(str(cell) for cell in cells)} |"


def table(rounds: list[Round]) -> str:
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return "\n".join(
        [
            f"{datetime.now(UTC):%Y-%m-%d}, {machine}; rounds of {rounds[0].seconds:.0f} s.",
            "",
            "| store | seed | troubles | acknowledged | refused calls | runs | all ended after | ended as | broken promises |",
            "|---|---|---|---|---|---|---|---|---|",
            *(one.row() for one in rounds),
        ]
    )


def placed(page: str, text: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"docs/reliability.md has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def written(rounds: list[Round]) -> None:
    PAGE.write_text(placed(PAGE.read_text(encoding="utf-8"), table(rounds)), encoding="utf-8")
