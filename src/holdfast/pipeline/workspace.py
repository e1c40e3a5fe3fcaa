"""The folder of one pipeline run: private, locked while its run lives, and removed whatever it holds.

The lock is the kernel's, on the folder itself: it goes with the process, however that ends. A folder without a lock
belongs to a dead run, and the next run in the same place removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import stat
import tempfile
import uuid
from pathlib import Path

from holdfast.errors import ConfigError
from holdfast.pipeline.memory import carries, process_table

VARIABLE = "HOLDFAST_WORKSPACE"
"""Tools get it, so that those that outlive a killed worker can be found."""
_PREFIX = "run-"
_TRIES_MAX = 100
_PASSES_MAX = 10


class Workspace:
    """An own folder, and the lock that says so."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def create(cls, root: Path | None) -> Workspace:
        home = _root(root)
        for _ in range(_TRIES_MAX):
            path = home / f"{_PREFIX}{uuid.uuid4().hex}"
            path.mkdir(mode=0o700)
            lock = _locked(path)
            if lock is not None and path.exists():
                return cls(path, lock)
            if lock is not None:  # a sweeper took it for an orphan before it was locked
                os.close(lock)
        raise ConfigError(f"no workspace can be kept in {home}; set another folder for temporary files")

    def remove(self) -> bool:
        """False where something could not be removed; the next run tries again."""
        try:
            return remove_tree(self.path)
        finally:
            os.close(self._lock)


def sweep(root: Path | None) -> int:
    """Remove what dead runs left behind, end the tools that still work there, and say how many folders it was."""
    removed = 0
    with contextlib.suppress(OSError):
        for path in _root(root).glob(f"{_PREFIX}*"):
            lock = _locked(path)
            if lock is None:
                continue
            try:
                _end_tools_of(path)
                removed += remove_tree(path)
            finally:
                os.close(lock)
    return removed


def _root(root: Path | None) -> Path:
    if root is not None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        return root
    shared = Path(tempfile.gettempdir(), f"holdfast-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        shared.mkdir(mode=0o700)
    found = shared.lstat()
    # Everybody may write to the folder above, so somebody else may have been there first.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ConfigError(f"{shared} is not a private folder of this user; remove it")
    return shared


def _locked(path: Path) -> int | None:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        return None
    return folder


def _end_tools_of(path: Path) -> None:
    mark = f"{VARIABLE}={path}".encode()
    for process in process_table():
        if carries(process.pid, mark):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def remove_tree(path: Path) -> bool:
    """Also where folders are closed to their owner, nested deeper than a path or a recursion reaches, or the disk is full."""
    for _ in range(_PASSES_MAX):
        _remove_once(path)
        if not path.exists():
            return True
    return False


def _remove_once(path: Path) -> None:
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            waiting += [_moved_up(below, path) for below in _without_files(folder)]
            folder.rmdir()
    with contextlib.suppress(OSError):
        path.rmdir()


def _without_files(folder: Path) -> list[Path]:
    """The folders in it, after everything else in it was removed."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
    return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def _moved_up(folder: Path, top: Path) -> Path:
    """Just below the top, so that no path ever gets long; where it is, when a full disk has no room for the new name."""
    if folder.parent == top:
        return folder
    higher = top / uuid.uuid4().hex
    try:
        os.chmod(folder, 0o700)
        os.rename(folder, higher)
    except OSError:
        return folder
    return higher
