"""Reading files of a repository that nobody trusts: bounded, regular files only, never outside the root."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from holdfast.extraction.model import Problem

Shape = TypeVar("Shape")

BYTES_PER_FILE_MAX = 16 * 1024 * 1024
BYTES_PER_TREE_MAX = 64 * 1024 * 1024
BYTES_PER_READ_MIN = 4 * 1024
"""What a read counts at least, so that reading small files over and over has an end, too."""
TOML_BYTES_MAX = 4 * 1024 * 1024
TOML_DOTS_PER_LINE_MAX = 64
TOML_DOTS_MAX = 400_000
FOLDERS_MAX = 50_000
FOLDER_DEPTH_MAX = 32
MANIFESTS_MAX = 2_000

NOT_OURS = {".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "__pycache__", "site-packages"}
NOT_OURS |= {"node_modules", "bower_components", "vendor"}
"""Folders that hold copies of other people's packages, or no sources at all."""


class ManifestProblem(Exception):
    """A manifest cannot be read; `message` says why in one sentence and never quotes the file, which may hold secrets."""

    def __init__(self, manifest: str, message: str, code: str = "unreadable") -> None:
        super().__init__(f"{manifest}: {message}")
        self.problem = Problem(manifest=manifest, code=code, message=message)


class Source:
    """One checkout; paths are POSIX, relative to its root."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.bytes_read = 0
        self._facts: dict[str, Any] = {}
        self.found: list[str] = []
        """The manifests of the folder that is being read, for lockfiles that speak for several of them."""

    def once(self, what: str, find: Callable[[Source], Shape]) -> Shape:
        """A fact about the whole checkout, found out at the first need."""
        if what not in self._facts:
            self._facts[what] = find(self)
        fact: Shape = self._facts[what]
        return fact

    def walk(self, below: str) -> Iterator[str]:
        """Every regular file below a folder, without links and without `NOT_OURS`, in a stable order."""
        folders = [(below, 0)]
        seen = 0
        while folders:
            folder, depth = folders.pop()
            seen += 1
            if seen > FOLDERS_MAX:
                raise ManifestProblem(below or ".", f"more than {FOLDERS_MAX} folders: set a package path.", "too_large")
            files, below_it = self._list(folder)
            yield from files
            if depth < FOLDER_DEPTH_MAX:
                folders.extend((path, depth + 1) for path in reversed(below_it))

    def _list(self, folder: str) -> tuple[list[str], list[str]]:
        files, folders = [], []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    path = inside(folder, entry.name)
                    if entry.is_file(follow_symlinks=False):
                        files.append(path)
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in NOT_OURS:
                        folders.append(path)
        except OSError:  # gone, or not ours to look into
            return [], []
        return sorted(files), sorted(folders)

    def folder(self, path: str) -> str:
        """The package path as we write it: "" for the root; it may not leave the checkout, not even by a link."""
        clean = _normal(path)
        if clean is None or "\0" in path or not (self.root / clean).resolve().is_relative_to(self.root):
            raise ManifestProblem(shown(path), "the package path leads out of the repository.", "outside")
        return clean

    def exists(self, path: str) -> bool:
        return self._has_no_link(path) and (self.root / path).is_file()

    def read(self, path: str) -> bytes:
        if not self._has_no_link(path):
            raise ManifestProblem(shown(path), "is a link; links are not followed.", "link")
        try:
            # O_NONBLOCK: opening a FIFO must not wait for somebody to write into it.
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise ManifestProblem(shown(path), "cannot be opened.") from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ManifestProblem(shown(path), "is not a regular file.")
            if status.st_size > BYTES_PER_FILE_MAX:
                raise ManifestProblem(shown(path), f"is larger than {BYTES_PER_FILE_MAX // 1024**2} MiB.", "too_large")
            if self.bytes_read + status.st_size > BYTES_PER_TREE_MAX:
                message = f"not read: the manifests are larger than {BYTES_PER_TREE_MAX // 1024**2} MiB together."
                raise ManifestProblem(shown(path), message, "too_large")
            data = file.read(BYTES_PER_FILE_MAX)
        self.bytes_read += max(len(data), BYTES_PER_READ_MIN)
        return data

    def _has_no_link(self, path: str) -> bool:
        """The file itself may still be exchanged under us; a checkout is ours alone while we read it."""
        place = self.root
        for part in PurePosixPath(path).parts:
            place = place / part
            if part == ".." or place.is_symlink():
                return False
        return True


def _normal(path: str) -> str | None:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def beside(path: str, other: str) -> str | None:
    """The path of a file that is named from the folder of another one; None when it leads out of the repository."""
    if other.startswith("/"):
        return None
    return _normal(f"{folder_of(path)}/{other}")


def folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def shown(path: str) -> str:
    """A path that can be stored and printed, whatever bytes its author chose."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in path)


def parse_json(data: bytes, shape: type[Shape], path: str) -> Shape:
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"), type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ManifestProblem(shown(path), "is not the JSON that a file of this name holds.") from error


def parse_toml(data: bytes, path: str) -> dict[str, Any]:
    if len(data) > TOML_BYTES_MAX:
        raise ManifestProblem(shown(path), f"is larger than {TOML_BYTES_MAX // 1024**2} MiB.", "too_large")
    # A key of n dotted parts costs n² time and memory in tomllib.
    dots = [line.count(b".") for line in data.splitlines()]
    if max(dots, default=0) > TOML_DOTS_PER_LINE_MAX or sum(dots) > TOML_DOTS_MAX:
        raise ManifestProblem(shown(path), "is nested too deeply.", "too_large")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ManifestProblem(shown(path), "is not valid TOML.") from error
