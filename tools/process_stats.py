"""What a process takes, asked of Linux: memory, open files, threads, processor time; its children count along."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
_TICKS = os.sysconf("SC_CLK_TCK")


class Taken(NamedTuple):
    rss_mb: float = 0.0
    files: int = 0
    threads: int = 0
    cpu_seconds: float = 0.0


def taken_by(group: int) -> Taken:
    """By all processes of a group; nothing, if there is none any more."""
    found = [_taken(folder, fields) for folder, fields in _of_group(group)]
    return Taken(*(sum(column) for column in zip(*found, strict=True))) if found else Taken()


def taken_by_process(pid: int) -> Taken:
    """By this one alone."""
    folder = Path("/proc", str(pid))
    return _taken(folder, _fields(folder))


def _of_group(group: int) -> Iterator[tuple[Path, list[str]]]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = _fields(folder)
            if int(fields[2]) == group and fields[0] not in "ZX":
                yield folder, fields


def _fields(folder: Path) -> list[str]:
    """Of its `stat`, from its state on: the name before that may hold blanks and brackets."""
    line = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    return line[line.rindex(")") + 2 :].split()


def _taken(folder: Path, fields: list[str]) -> Taken:
    files = 0
    with contextlib.suppress(OSError):
        files = len(os.listdir(folder / "fd"))
    return Taken(int(fields[21]) * _PAGE_MB, files, int(fields[17]), (int(fields[11]) + int(fields[12])) / _TICKS)
