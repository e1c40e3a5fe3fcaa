"""npm: package-lock.json and npm-shrinkwrap.json (versions 1 to 3), and package.json alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.extraction.manifests.packages import Packages, Reading, closure
from holdfast.extraction.manifests.source import ManifestProblem, Source, beside, folder_of, inside, parse_json, shown
from holdfast.extraction.model import Scope

KEY_LENGTH_MAX = 512
NESTED_LEVELS_MAX = 40
PACKAGE_JSON_BYTES_MAX = 1024 * 1024
EXACT_VERSION = re.compile(r"=?v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")


class _Entry(msgspec.Struct, rename="camel"):
    """A place in the tree of node_modules, or a workspace's own folder (lockfile versions 2 and 3)."""

    name: str | None = None
    version: str | None = None
    resolved: str | bool | None = None
    link: bool = False
    extraneous: bool = False
    dev: bool = False
    optional: bool = False
    dev_optional: bool = False
    dependencies: dict[str, str] = {}
    dev_dependencies: dict[str, str] = {}
    optional_dependencies: dict[str, str] = {}
    peer_dependencies: dict[str, str] = {}


class _Nested(msgspec.Struct):
    """A package of lockfile version 1, with the packages below it."""

    version: str | None = None
    dev: bool = False
    optional: bool = False
    requires: dict[str, str] | bool | None = None
    dependencies: dict[str, _Nested] = {}


class _Lock(msgspec.Struct, rename="camel"):
    lockfile_version: int = 1
    packages: dict[str, _Entry] = {}
    dependencies: dict[str, _Nested] = {}


def read_lock(source: Source, path: str, members: set[str] | None = None) -> Reading:
    """A lockfile; `members` are the folders of those workspaces whose dependencies are asked for, seen from the lockfile."""
    lock = parse_json(source.read(path), _Lock, path)
    packages = Packages("npm", path)
    if lock.packages:
        own = _read_entries(lock.packages, packages, members)
        speaks_for = {folder for place in own if (folder := beside(path, place)) is not None}
        return packages.reading(only_reached=members is not None, speaks_for=speaks_for)
    declared = inside(folder_of(path), "package.json")
    direct_known = source.exists(declared)
    _read_nested(lock.dependencies, _declared(source, declared) if direct_known else {}, packages)
    return packages.reading(direct_known=direct_known, speaks_for={folder_of(path)})


def _read_entries(entries: dict[str, _Entry], packages: Packages, members: set[str] | None) -> set[str]:
    purls: dict[str, str | None] = {}
    own = {""}
    for place, entry in entries.items():
        if len(place) > KEY_LENGTH_MAX:
            raise ManifestProblem(shown(packages.manifest), "nests packages too deeply.", "too_large")
        if not _is_installed(place):
            own.add(place)
        elif not (entry.link or entry.extraneous):
            purls[place] = packages.add(entry.name or _last_name(place), entry.version or "", _scope_of(entry))
    tree = _Tree(entries)
    for place, purl in purls.items():
        entry = entries[place]
        resolve = tree.resolver(place)
        needs = [*entry.dependencies, *entry.optional_dependencies, *entry.peer_dependencies]
        packages.link(purl, (purls.get(resolve(name)) for name in needs))
    if members is not None:
        own = closure(members & own, lambda place: _linked(place, tree))
    for place in own:
        resolve = tree.resolver(place)
        for name, scope in _declared_by(entries.get(place) or _Entry()):
            packages.direct(purls.get(resolve(name)), scope)
    return own


def _is_installed(place: str) -> bool:
    return place.startswith("node_modules/") or "/node_modules/" in place


def _linked(place: str, tree: _Tree) -> Iterator[str]:
    """The workspaces that a workspace depends on."""
    resolve = tree.resolver(place)
    for name, _ in _declared_by(tree.entries.get(place) or _Entry()):
        found = tree.entries.get(resolve(name))
        if found is not None and found.link and isinstance(found.resolved, str):
            yield found.resolved


def _scope_of(entry: _Entry) -> Scope:
    if entry.dev:
        return "dev"
    return "optional" if entry.optional or entry.dev_optional else "required"


def _declared_by(entry: _Entry) -> Iterator[tuple[str, Scope]]:
    for name in (*entry.dependencies, *entry.peer_dependencies):
        yield name, "optional" if name in entry.optional_dependencies else "required"
    for name in entry.optional_dependencies:
        yield name, "optional"
    for name in entry.dev_dependencies:
        yield name, "dev"


def _last_name(place: str) -> str:
    return place.rpartition("node_modules/")[2]


class _Tree:
    """The packages on disk as Node sees them."""

    def __init__(self, entries: dict[str, _Entry]) -> None:
        self.entries = entries
        self._holders = {place.removesuffix(_last_name(place)) for place in entries if _is_installed(place)}

    def resolver(self, place: str) -> Callable[[str], str]:
        """Where Node finds a package that is asked for in `place`: the nearest node_modules on the way up; "" for nowhere."""
        holders = []
        while True:
            if (holder := inside(place, "node_modules/")) in self._holders:
                holders.append(holder)
            if not place:
                break
            # From a/node_modules/b to a, from node_modules/@s/a to the root, from packages/a to packages.
            around, installed, _ = place.rpartition("/node_modules/")
            place = around if installed else "" if _is_installed(place) else folder_of(place)
        return lambda name: next((found for holder in holders if (found := holder + name) in self.entries), "")


_Level = dict[str, _Nested]


def _read_nested(top: _Level, direct: dict[str, Scope], packages: Packages) -> None:
    """Version 1: each package looks among its own `dependencies`, then among those of the packages around it."""
    purls: dict[int, str | None] = {}
    waiting: list[tuple[_Level, ...]] = [(top,)]
    sights: list[tuple[_Level, ...]] = []
    while waiting:
        sight = waiting.pop()
        sights.append(sight)
        if len(sight) > NESTED_LEVELS_MAX:
            raise ManifestProblem(shown(packages.manifest), "nests packages too deeply.", "too_large")
        for name, nested in sight[0].items():
            scope: Scope = "dev" if nested.dev else "optional" if nested.optional else "required"
            purls[id(nested)] = packages.add(*_nested_identity(name, nested.version or ""), scope)
            if nested.dependencies:
                waiting.append((nested.dependencies, *sight))
    for sight in sights:
        for nested in sight[0].values():
            names = nested.requires if isinstance(nested.requires, dict) else {}
            found = (next((level[name] for level in (nested.dependencies, *sight) if name in level), None) for name in names)
            packages.link(purls[id(nested)], (purls[id(target)] if target else None for target in found))
    for name, scope in direct.items():
        if name in top:
            packages.direct(purls[id(top[name])], scope)


def _nested_identity(name: str, version: str) -> tuple[str, str]:
    if version.startswith("npm:"):  # an alias: npm:real-name@1.0.0
        real, _, version = version.removeprefix("npm:").rpartition("@")
        return real or name, version
    return name, version if EXACT_VERSION.fullmatch(version) else ""


def read_package(source: Source, path: str) -> Reading:
    """package.json alone: the direct dependencies, with a version only where one is named exactly."""
    packages = Packages("npm", path)
    declared = _package_json(source, path)
    for field, scope in _FIELDS.items():
        for name, wanted in _texts(declared.get(field)).items():
            if wanted.startswith("npm:"):
                real, _, wanted = wanted.removeprefix("npm:").rpartition("@")
                name = real or name
            if wanted.startswith(("file:", "link:", "workspace:", "portal:")):
                continue
            exact = EXACT_VERSION.fullmatch(wanted.strip())
            packages.direct(packages.add(name, exact[1] if exact else ""), scope)
    return packages.reading()


_FIELDS: dict[str, Scope] = {
    "dependencies": "required",
    "peerDependencies": "required",
    "optionalDependencies": "optional",
    "devDependencies": "dev",
}


def _declared(source: Source, path: str) -> dict[str, Scope]:
    declared = _package_json(source, path)
    return {name: scope for field, scope in reversed(_FIELDS.items()) for name in _texts(declared.get(field))}


def _package_json(source: Source, path: str) -> dict[str, Any]:
    data = source.read(path)
    if len(data) > PACKAGE_JSON_BYTES_MAX:
        raise ManifestProblem(shown(path), "is larger than 1 MiB.", "too_large")
    return parse_json(data, dict[str, Any], path)


def _texts(value: object) -> dict[str, str]:
    """Some packages write an empty list, or a comment, where a table belongs; npm does not mind."""
    if not isinstance(value, dict):
        return {}
    return {name: wanted for name, wanted in value.items() if isinstance(name, str) and isinstance(wanted, str)}
