"""Answers: JSON for programs, words and tables for people. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import getpass
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

if TYPE_CHECKING:
    from rich.console import Console

STATE_STYLES = {
    "completed": "green",
    "running": "cyan",
    "failed": "bold red",
    "lost": "red",
    "retrying": "yellow",
    "cancelled": "magenta",
    "cancelling": "magenta",
}
LEVEL_STYLES = {"error": "red", "warning": "yellow", "success": "green"}
ID_CHARS = 36
WIDE = 240
"""Columns where nobody looks at a terminal: nothing is cut off."""


def print_json(data: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(data), indent=2).decode())


def say(text: str) -> None:
    click.echo(text, err=True)


def console() -> Console:
    from rich.console import Console

    out = Console(highlight=False, markup=False, emoji=False)
    return out if out.is_terminal else Console(highlight=False, markup=False, emoji=False, width=WIDE)


def print_table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns that are empty everywhere are left out; an id is never cut."""
    from rich.table import Table
    from rich.text import Text

    rows = [list(row) for row in rows]
    used = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number in used:
        width = ID_CHARS if columns[number] == "id" else None
        table.add_column(columns[number], no_wrap=number != used[-1], overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*(Text(row[number], style=STATE_STYLES.get(row[number], "")) for number in used))
    out.print(table)


def moment(at: datetime | None) -> str:
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def age(at: datetime | None) -> str:
    return "" if at is None else f"{duration((datetime.now(UTC) - at).total_seconds())} ago"


def duration(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for limit, size, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def who() -> str:
    """Who stands behind this call, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "the command line"
