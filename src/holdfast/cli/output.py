"""Answers: JSON for programs, words and tables for people. Data goes to standard output, talk to standard error."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast.redact import redact, redact_json

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
ID_CHARS = 36
WIDE = 240
"""Columns where nobody looks at a terminal: nothing is cut off."""

_COLOURS = re.compile("\x1b\\[[0-9;]{0,40}m")
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys instead of showing it, what ends a line or turns the direction of writing; all but newline and tab."""


def printable(text: str) -> str:
    """What somebody else wrote, so that it is shown and never obeyed, and without secrets."""
    return _COMMANDS.sub(_shown, redact(_COLOURS.sub("", text)))


def _shown(found: re.Match[str]) -> str:
    number = ord(found[0])
    return chr(0x2400 + number) if number < 0x20 else "␡" if number == 0x7F else f"\\u{number:04x}"


def json_text(data: Any) -> str:
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", redact_json(msgspec.json.encode(data)).decode())


def print_json(data: Any) -> None:
    click.echo(msgspec.json.format(json_text(data), indent=2))


def say(text: str) -> None:
    click.echo(redact(text), err=True)


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
        table.add_row(*(Text(printable(row[number]), style=STATE_STYLES.get(row[number], "")) for number in used))
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
