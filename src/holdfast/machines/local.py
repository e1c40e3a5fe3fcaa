"""Machines that are worker processes on this host: started on demand, gone when idle.

A file per machine tells every parent, also one that comes after a crash, which process it is. A worker ends by itself when it
is idle or too old, so that one whose parent died lives on to finish its work, and no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError
from holdfast.machines.protocol import Kind, Machine, MachineState, StartRefused
from holdfast.settings import Settings

Found = list[Machine]
END_SECONDS = 5.0
"""How long the end of a killed process is waited for."""
MACHINE_VARIABLE = "HOLDFAST_MACHINE_ID"


class Entry(msgspec.Struct):
    """One machine, as its file has it. Without a process it is stopped."""

    name: str
    kind: Kind
    created_at: datetime
    started_at: datetime | None = None
    pid: int | None = None
    born: str = ""
    """When the kernel started that process: a number that is used again is another process."""


class LocalProvider:
    name = "local"
    list_lag_seconds = 0.0
    """What it says is so."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        self._command = list(command)
        self._folder = folder
        self._env = dict(env or {})
        self._children: set[int] = set()
        """Ours, to be collected when they end."""

    async def list(self) -> list[Machine]:
        return await asyncio.to_thread(self._locked_list)

    async def create(self, name: str, kind: Kind) -> Machine:
        return await asyncio.to_thread(self._create, name, kind)

    async def start(self, machine_id: str) -> None:
        await asyncio.to_thread(self._start, machine_id)

    async def stop(self, machine_id: str) -> None:
        await asyncio.to_thread(self._signal, machine_id, signal.SIGTERM)

    async def destroy(self, machine_id: str) -> None:
        await asyncio.to_thread(self._destroy, machine_id)

    async def aclose(self) -> None:
        """The processes go on: they finish their work and end when idle, or are adopted by the next parent."""

    # -- in a thread

    def _locked_list(self) -> Found:
        with self._locked():
            return [machine for entry in self._entries() if (machine := self._machine(entry)) is not None]

    def _machine(self, entry: Entry) -> Machine | None:
        running = self._runs(entry)
        if not running and entry.kind == "burst":
            self._path(entry.name).unlink(missing_ok=True)  # it has removed itself
            return None
        return Machine(
            id=entry.name,
            name=entry.name,
            kind=entry.kind,
            state=MachineState.RUNNING if running else MachineState.STOPPED,
            created_at=entry.created_at,
            started_at=entry.started_at if running else None,
            said=f"process {entry.pid}" if running else "ended",
        )

    def _create(self, name: str, kind: Kind) -> Machine:
        with self._locked():
            entry = self._entry(name) or Entry(name, kind, datetime.now(UTC))
            self._spawn(entry)
            machine = self._machine(entry)
        if machine is None:
            raise StartRefused(f"The process of machine {name} ended as soon as it was started.")
        return machine

    def _start(self, machine_id: str) -> None:
        with self._locked():
            entry = self._entry(machine_id)
            if entry is None:
                raise StartRefused(f"There is no machine {machine_id} any more.")
            self._spawn(entry)

    def _spawn(self, entry: Entry) -> None:
        """Unless its process runs already. In a session of its own: a Ctrl+C meant for the parent is not meant for it."""
        if self._runs(entry):
            return
        try:
            # Not subprocess: whoever starts these need not wait for them, and its objects insist on it.
            entry.pid = os.posix_spawnp(
                self._command[0],
                self._command,
                {**os.environ, **self._env, MACHINE_VARIABLE: entry.name},
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except OSError as error:
            raise StartRefused(f"The process of machine {entry.name} cannot be started: {error}.") from error
        self._children.add(entry.pid)
        entry.born, entry.started_at = _born(entry.pid) or "", datetime.now(UTC)
        path = self._path(entry.name)
        part = path.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(entry))
        part.replace(path)

    def _signal(self, machine_id: str, number: int) -> None:
        with self._locked():
            entry = self._entry(machine_id)
            if entry is not None and entry.pid is not None and self._runs(entry):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(entry.pid, number)

    def _destroy(self, machine_id: str) -> None:
        with self._locked():
            entry = self._entry(machine_id)
            if entry is None:
                return
            if entry.pid is not None and self._runs(entry):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(entry.pid, signal.SIGKILL)  # its isolated tasks are of its group
                until = time.monotonic() + END_SECONDS
                while self._runs(entry) and time.monotonic() < until:
                    time.sleep(0.01)
            self._path(machine_id).unlink(missing_ok=True)

    def _runs(self, entry: Entry) -> bool:
        if entry.pid is None:
            return False
        if entry.pid in self._children and _has_ended(entry.pid):
            self._children.discard(entry.pid)
            return False
        return _born(entry.pid) == entry.born

    # -- files

    def _path(self, name: str) -> Path:
        if not name or not all(sign.isalnum() or sign in "-_" for sign in name):
            raise StartRefused(f"{name!r:.80} is no name of a machine.")
        return self._folder / f"{name}.json"

    def _entry(self, name: str) -> Entry | None:
        try:
            return msgspec.json.decode(self._path(name).read_bytes(), type=Entry)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _entries(self) -> Sequence[Entry]:
        found = [self._entry(path.stem) for path in sorted(self._folder.glob("*.json"))]
        return [entry for entry in found if entry is not None]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One parent at a time."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._folder.stat().st_uid != os.getuid():
            raise ConfigError(f"{self._folder} belongs to somebody else; set machine_folder to a folder of your own.")
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _has_ended(child: int) -> bool:
    try:
        return os.waitpid(child, os.WNOHANG)[0] != 0
    except ChildProcessError:  # somebody else in this process has collected it
        return True


def _born(pid: int) -> str | None:
    """What tells this process from any other with its number; None if it does not run."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _born_by_ps(pid)
    except OSError:
        return None
    fields = line[line.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields[19]


def _born_by_ps(pid: int) -> str | None:
    """Where there is no /proc."""
    said = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    state, _, born = said.strip().partition(" ")
    return born.strip() if state and not state.startswith("Z") else None


def from_settings(settings: Settings) -> LocalProvider:
    command = [sys.executable, "-m", "holdfast", "worker"]
    command += ["--concurrency", str(settings.machine_concurrency), "--exit-when-idle", str(settings.machine_idle)]
    command += ["--max-lifetime", str(settings.machine_lifetime)]
    command += ["--app", settings.machine_app] if settings.machine_app else []
    path = parse_database_url(settings.database_url).path
    database = settings.database_url if path is None else os.path.abspath(path)
    key = hashlib.sha256(database.encode()).hexdigest()[:16]
    folder = Path(settings.machine_folder or Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}" / key)
    return LocalProvider(command, folder, {"HOLDFAST_DATABASE_URL": settings.database_url})
