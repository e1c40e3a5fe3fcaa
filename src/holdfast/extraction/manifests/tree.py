"""Reading a folder of a repository: find the manifests, read lockfiles first, and the rest alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.extraction.manifests import cargo, go, maven, npm, python_locks
from holdfast.extraction.manifests.packages import COMPONENTS_MAX, Reading, strongest
from holdfast.extraction.manifests.pyproject import read_pyproject
from holdfast.extraction.manifests.requirements import is_requirements, read_requirements
from holdfast.extraction.manifests.source import MANIFESTS_MAX, ManifestProblem, Source, folder_of, inside, name_of, shown
from holdfast.extraction.model import Component, Inventory, Manifest, Problem

LockReader = Callable[[Source, str, set[str] | None], Reading]
ManifestReader = Callable[[Source, str], Reading]

LOCKS: dict[str, tuple[str, LockReader]] = {
    "package-lock.json": ("npm", npm.read_lock),
    "npm-shrinkwrap.json": ("npm", npm.read_lock),
    "uv.lock": ("PyPI", python_locks.read_uv),
    "poetry.lock": ("PyPI", python_locks.read_poetry),
    "Cargo.lock": ("crates.io", cargo.read_lock),
}
NEED_A_LOCK: dict[str, tuple[str, ManifestReader]] = {
    "package.json": ("npm", npm.read_package),
    "pyproject.toml": ("PyPI", read_pyproject),
    "Cargo.toml": ("crates.io", cargo.read_toml),
}
NEED_NONE: dict[str, tuple[str, ManifestReader]] = {
    "go.mod": ("Go", go.read_mod),
    "pom.xml": ("Maven", maven.read_pom),
}
OTHER_LOCKS = {
    "yarn.lock": "npm",
    "pnpm-lock.yaml": "npm",
    "bun.lock": "npm",
    "bun.lockb": "npm",
    "Pipfile.lock": "PyPI",
    "pdm.lock": "PyPI",
}
NOT_READ = OTHER_LOCKS | {
    "Pipfile": "PyPI",
    "setup.py": "PyPI",
    "setup.cfg": "PyPI",
    "build.gradle": "Maven",
    "build.gradle.kts": "Maven",
    "gradle.lockfile": "Maven",
    "build.sbt": "Maven",
    "Gemfile": "RubyGems",
    "Gemfile.lock": "RubyGems",
    "composer.json": "Packagist",
    "composer.lock": "Packagist",
    "packages.config": "NuGet",
    "packages.lock.json": "NuGet",
    "pubspec.yaml": "Pub",
    "pubspec.lock": "Pub",
    "mix.exs": "Hex",
    "mix.lock": "Hex",
    "Package.swift": "SwiftURL",
    "Package.resolved": "SwiftURL",
}
"""Known, so that "no manifest" is said only where there is none; other tools read them."""


class _Found(NamedTuple):
    path: str
    ecosystem: str
    is_read: bool


def read_tree(root: Path, path: str = "") -> Inventory:
    """All dependencies below the package path; raises `ManifestProblem` only for a path that leaves the repository."""
    source = Source(root)
    return TreeReader(source, source.folder(path)).read()


class TreeReader:
    """One reading of one folder."""

    def __init__(self, source: Source, folder: str) -> None:
        self.source = source
        self.folder = folder
        self.components: dict[tuple[str, str], Component] = {}
        self.problems: list[Problem] = []
        self.spoken_for: set[tuple[str, str]] = set()
        """Ecosystem and folder, or ecosystem and file, that need no look any more."""

    def read(self) -> Inventory:
        found = self._find()
        self.source.found = [one.path for one in found]
        for one in found:
            if name_of(one.path) in LOCKS:
                self._take(one, lambda path: LOCKS[name_of(path)][1](self.source, path, None))
        above = self._take_locks_above(found)
        for one in found:
            if self._waits_for_lock(one):
                self._take_alone(one)
            elif name_of(one.path) in NEED_NONE:
                self._take(one, lambda path: NEED_NONE[name_of(path)][1](self.source, path))
            elif is_requirements(one.path) and (one.ecosystem, one.path) not in self.spoken_for:
                self._take(one, lambda path: read_requirements(self.source, path))
        return Inventory(
            components=[component for _, component in sorted(self.components.items())],
            manifests=[Manifest(path=shown(one.path), ecosystem=one.ecosystem, read=one.is_read) for one in [*found, *above]],
            problems=self.problems,
        )

    def _find(self) -> list[_Found]:
        found: list[_Found] = []
        try:
            for path in self.source.walk(self.folder):
                if (one := _recognise(path)) is None:
                    continue
                if len(found) == MANIFESTS_MAX:
                    raise ManifestProblem(shown(path), f"more than {MANIFESTS_MAX} manifests: set a package path.", "too_large")
                found.append(one)
        except ManifestProblem as problem:
            self.problems.append(problem.problem)
        return found

    def _take(self, one: _Found, read: Callable[[str], Reading]) -> Reading | None:
        try:
            reading = read(one.path)
            self._add(reading.components)
        except ManifestProblem as problem:
            self.problems.append(problem.problem)
            return None
        self.problems += reading.problems
        self.spoken_for |= {(one.ecosystem, place) for place in reading.speaks_for}
        return reading

    def _add(self, components: list[Component]) -> None:
        if len(self.components) + len(components) > COMPONENTS_MAX:
            manifest = components[0].manifest
            raise ManifestProblem(manifest, f"more than {COMPONENTS_MAX} packages: set a package path.", "too_large")
        for component in components:
            key = (component.manifest, component.purl)
            known = self.components.get(key)
            self.components[key] = _joined(known, component) if known else component

    def _take_locks_above(self, found: list[_Found]) -> list[_Found]:
        """Members of a workspace are locked by a file above the package path; their part of it counts."""
        taken = []
        folder = self.folder
        while folder:
            folder = folder_of(folder)
            for name, (ecosystem, read) in LOCKS.items():
                lock = _Found(inside(folder, name), ecosystem, True)
                waiting = {folder_of(one.path) for one in found if one.ecosystem == ecosystem and self._waits_for_lock(one)}
                if not waiting or not self.source.exists(lock.path):
                    continue
                try:
                    members = waiting & read(self.source, lock.path, None).speaks_for
                except ManifestProblem as problem:
                    self.problems.append(problem.problem)
                    continue
                inner = {member[len(folder) :].lstrip("/") for member in members}
                if inner and self._take(lock, _part_reader(read, self.source, inner)):
                    taken.append(lock)
        return taken

    def _waits_for_lock(self, one: _Found) -> bool:
        return name_of(one.path) in NEED_A_LOCK and (one.ecosystem, folder_of(one.path)) not in self.spoken_for

    def _take_alone(self, one: _Found) -> None:
        reading = self._take(one, lambda path: NEED_A_LOCK[name_of(path)][1](self.source, path))
        if reading is None or not reading.components:
            return
        if self._has_beside(one, LOCKS):
            code, why = "lockfile_unreadable", "its lockfile cannot be read"
        elif self._has_beside(one, OTHER_LOCKS):
            code, why = "lockfile_unsupported", "its kind of lockfile is read by cdxgen only"
        else:
            code, why = "no_lockfile", "there is no lockfile; commit one"
        message = f"{why}: only direct dependencies are known, and versions only where they are exact."
        self.problems.append(Problem(manifest=shown(one.path), code=code, message=message))

    def _has_beside(self, one: _Found, names: Iterable[str]) -> bool:
        return any(
            _ecosystem_of(name) == one.ecosystem and self.source.exists(inside(folder_of(one.path), name)) for name in names
        )


def _part_reader(read: LockReader, source: Source, members: set[str]) -> Callable[[str], Reading]:
    return lambda path: read(source, path, members)


def _recognise(path: str) -> _Found | None:
    name = name_of(path)
    for known in (LOCKS, NEED_A_LOCK, NEED_NONE):
        if name in known:
            return _Found(path, known[name][0], True)
    if is_requirements(path):
        return _Found(path, "PyPI", True)
    if name in NOT_READ:
        return _Found(path, NOT_READ[name], False)
    return _Found(path, "NuGet", False) if name.endswith((".csproj", ".fsproj", ".vbproj")) else None


def _ecosystem_of(name: str) -> str:
    return LOCKS[name][0] if name in LOCKS else OTHER_LOCKS[name]


def _joined(one: Component, other: Component) -> Component:
    return msgspec.structs.replace(
        one,
        scope=strongest(one.scope, other.scope),
        direct=True if one.direct or other.direct else one.direct if other.direct is None else other.direct,
        depends_on=sorted({*one.depends_on, *other.depends_on}),
    )
