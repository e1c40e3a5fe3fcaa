"""What a tool and all that it started take of the machine: found by looking, limited by a cgroup where one can be made.

An address-space limit is not used: Node and Java reserve far more than they ever touch.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MB = 1024 * 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")

_WORDS = re.compile(
    r"heap limit|heap out of memory|java\.lang\.OutOfMemoryError|\bMemoryError\b|runtime: out of memory|std::bad_alloc"
    r"|memory allocation of \d+ bytes failed|cannot allocate memory|out of memory, malloc failed|exceeded memory limit"
    r"|the engine was killed|\bout of memory\b",
    re.IGNORECASE,
)
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


def says_out_of_memory(text: str) -> bool:
    """Whether a tool's own words tell that it had too little memory."""
    return _WORDS.search(text) is not None


def ended_for_memory(exit_code: int, stderr: str, *, killed_by_us: bool, oom_kills: int = 0) -> bool:
    """Every way in which a lack of memory shows: the kernel's counter, its signal, or the tool's last words."""
    if oom_kills:
        return True
    if killed_by_us:
        return False
    return exit_code in _KILLED or (exit_code != 0 and says_out_of_memory(stderr))


class Process(NamedTuple):
    """One line of the process table."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    rss_bytes: int
    alive: bool


def process_table() -> list[Process]:
    """Every process there is; nothing where there is no /proc."""
    try:
        names = os.listdir(_PROC)
    except OSError:
        return []
    return [found for name in names if name.isdigit() and (found := _process(int(name))) is not None]


def _process(pid: int) -> Process | None:
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name in brackets may hold anything, also brackets and blanks.
    state, parent, group, session, *rest = line[line.rindex(b")") + 2 :].split()
    alive = state not in (b"Z", b"X")
    return Process(pid, int(parent), int(group), int(session), int(rest[15]), int(rest[17]) * _PAGE_BYTES, alive)


class Family:
    """A tool and everything it started, also what has left its group or lost its parent."""

    def __init__(self, leader: int, mark: bytes) -> None:
        self._leader = leader
        self._mark = mark
        self._known: dict[int, int] = {}

    def look(self) -> list[Process]:
        """Who lives now, from the whole process table."""
        table = process_table()
        started = {process.pid: process.started for process in table}
        # A number is not enough: it may have been given to a stranger since.
        self._known = {pid: then for pid, then in self._known.items() if started.get(pid) == then}
        for process in _elders_first(table):
            if self._leader in (process.pid, process.group, process.session) or process.parent in self._known:
                self._known[process.pid] = process.started
        return self._of(table)

    def glance(self) -> list[Process]:
        """Who lives now of those that the last look has seen: cheap."""
        return self._of([found for pid in self._known if (found := _process(pid)) is not None])

    def search(self) -> list[Process]:
        """Who lives now, with those that turned into daemons unseen: they still carry the mark in their environment."""
        for process in process_table():
            if process.pid not in self._known and carries(process.pid, self._mark):
                self._known[process.pid] = process.started
        return self.look()

    def _of(self, table: list[Process]) -> list[Process]:
        return [process for process in table if process.alive and self._known.get(process.pid) == process.started]


def _elders_first(table: list[Process]) -> list[Process]:
    """Parents before their children, so that one pass finds grandchildren."""
    return sorted(table, key=lambda process: (process.started, process.pid))


def carries(pid: int, mark: bytes) -> bool:
    """Whether a process was started with this entry in its environment."""
    try:
        return mark in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def bytes_used(members: list[Process]) -> int:
    return sum(process.rss_bytes for process in members)


def bytes_used_exactly(members: list[Process]) -> int:
    """Pages shared by several processes count once: forked tools would seem many times as large otherwise."""
    return sum(map(_used_by, members))


def _used_by(process: Process) -> int:
    share = _fair_share(process.pid)
    if share is not None:
        return share
    now = _process(process.pid)  # it may have ended since the table was read, and then takes nothing
    return now.rss_bytes if now is not None and now.alive and now.started == process.started else 0


def _fair_share(pid: int) -> int | None:
    try:
        found = re.search(rb"^Pss:\s+(\d+) kB", (_PROC / str(pid) / "smaps_rollup").read_bytes(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


class Cgroup:
    """A memory limit that the kernel keeps (cgroup v2)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def create(cls, name: str, memory_mb: float, root: Path = _CGROUPS) -> Cgroup | None:
        """None where this process may not make one: not Linux, version 1, or not delegated to it."""
        try:
            parent = root / _own_cgroup().lstrip("/")
            if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                (parent / "cgroup.subtree_control").write_text("+memory")
            folder = parent / name
            folder.mkdir()
        except (OSError, LookupError):
            return None
        group = cls(folder)
        try:
            (folder / "memory.max").write_text(str(int(memory_mb * MB)))
            (folder / "memory.oom.group").write_text("1")
        except OSError:
            group.remove()
            return None
        with contextlib.suppress(OSError):  # a kernel without swap accounting
            (folder / "memory.swap.max").write_text("0")
        return group

    def add(self, pid: int) -> None:
        with contextlib.suppress(OSError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            (self._folder / "cgroup.kill").write_text("1")

    @property
    def oom_kills(self) -> int:
        return next((int(count) for key, count in self._events() if key == "oom_kill"), 0)

    @property
    def peak_bytes(self) -> int:
        try:
            return int((self._folder / "memory.peak").read_text())
        except (OSError, ValueError):
            return 0

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()

    def _events(self) -> Iterator[tuple[str, str]]:
        try:
            lines = (self._folder / "memory.events").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            key, _, count = line.partition(" ")
            yield key, count


def _own_cgroup() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    raise LookupError
