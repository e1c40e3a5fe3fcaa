"""Log lines as people read them, without rich: a log may have a hundred thousand lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click
import msgspec

from holdfast.cli.output import duration, printable
from holdfast.job import LogLine

COLOURS = {"info": "blue", "success": "green", "warning": "yellow", "error": "red"}
DOT = "●"
INDENT = " " * 9
"""As wide as the time: what a message says in further lines cannot pass for a line of the log."""


def in_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def log_text(lines: Iterable[LogLine], *, colour: bool) -> str:
    return "\n".join((_in_colour if colour else _plain)(line) for line in lines)


def run_heading(run_no: int, *, colour: bool) -> str:
    text = f"── run {run_no} ──"
    return click.style(text, dim=True) if colour else text


def _plain(line: LogLine) -> str:
    took, details, trace = _tail_of(line)
    return f"{_time(line)} {line.level:<7} {_said(line)}{took}{details}{trace}"


def _in_colour(line: LogLine) -> str:
    took, details, trace = _tail_of(line)
    colour = COLOURS.get(line.level)
    said = click.style(_said(line), fg=colour) if line.level in ("warning", "error") else _said(line)
    dim = click.style(f"{took}{details}{trace}", dim=True) if took or details or trace else ""
    return f"{click.style(_time(line), dim=True)} {click.style(DOT, fg=colour)} {said}{dim}"


def _time(line: LogLine) -> str:
    return line.created_at.astimezone().strftime("%H:%M:%S") if line.created_at else "--:--:--"


def _said(line: LogLine) -> str:
    step = f"[{printable(line.step)}] " if line.step else ""
    return step + _indented(line.message)


def _tail_of(line: LogLine) -> tuple[str, str, str]:
    """How long it took, the metadata, and the traceback below."""
    took = f" ({duration(line.duration_ms / 1000)})" if line.duration_ms is not None else ""
    metadata = dict(line.metadata or {})
    trace = metadata.pop("traceback", None)
    details = f" {printable(msgspec.json.encode(metadata).decode())}" if metadata else ""
    return took, details, f"\n{INDENT}{_indented(str(trace).rstrip())}" if trace else ""


def _indented(text: str) -> str:
    return printable(text.rstrip("\r\n").replace("\r\n", "\n")).replace("\n", f"\n{INDENT}")
