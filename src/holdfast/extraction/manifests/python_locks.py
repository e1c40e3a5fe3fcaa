"""Python's lockfiles: poetry.lock and uv.lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from holdfast.extraction.manifests.packages import Packages, Reading, closure
from holdfast.extraction.manifests.pyproject import Declared, declared_in, folded, parse_requirement, table, tables, text
from holdfast.extraction.manifests.source import Source, beside, folder_of, inside, parse_toml
from holdfast.extraction.model import Scope

Versions = dict[str, dict[str, str]]
"""Folded name -> version -> purl: a lockfile may hold a package in several versions, each for its own platforms."""


def read_poetry(source: Source, path: str, members: set[str] | None = None) -> Reading:
    """poetry.lock; pyproject.toml beside it says what is direct."""
    packages = Packages("pypi", path)
    locked = [one for one in tables(parse_toml(source.read(path), path), "package") if not _is_folder(one)]
    versions: Versions = defaultdict(dict)
    purls: list[str | None] = []
    for one in locked:
        purls.append(packages.add(text(one.get("name")), text(one.get("version")), _poetry_scope(one)))
        if (purl := purls[-1]) is not None:
            versions[folded(one.get("name"))][text(one.get("version"))] = purl
    beside_it = inside(folder_of(path), "pyproject.toml")
    direct_known = source.exists(beside_it)
    declared = declared_in(parse_toml(source.read(beside_it), beside_it)) if direct_known else []
    extras = _extras_asked_for(locked, declared)
    for one, purl in zip(locked, purls, strict=True):
        names = _poetry_needs(one, extras[folded(one.get("name"))])
        packages.link(purl, (found for name in names for found in versions.get(name, {}).values()))
    for wanted in declared:
        for purl in versions.get(folded(wanted.name), {}).values():
            packages.direct(purl, wanted.scope)
    return packages.reading(direct_known=direct_known, speaks_for={folder_of(path)})


def _is_folder(locked: dict[str, Any]) -> bool:
    return table(locked, "source").get("type") == "directory"


def _poetry_scope(locked: dict[str, Any]) -> Scope:
    groups = locked.get("groups") or [locked.get("category", "main")]
    if isinstance(groups, list) and "main" not in groups:
        return "dev"
    return "optional" if locked.get("optional") is True else "required"


def _extras_asked_for(locked: list[dict[str, Any]], declared: list[Declared]) -> dict[str, set[str]]:
    """Folded name -> extras, of all who ask for them."""
    asked: dict[str, set[str]] = defaultdict(set)
    for wanted in declared:
        asked[folded(wanted.name)].update(wanted.extras)
    for one in locked:
        for name, options in table(one, "dependencies").items():
            extras = options.get("extras") if isinstance(options, dict) else None
            asked[folded(name)].update(extra for extra in extras or () if isinstance(extra, str))
    return asked


def _poetry_needs(locked: dict[str, Any], extras: set[str]) -> Iterator[str]:
    """What a package needs; what it needs only for an extra counts when somebody asks for that extra."""
    by_extra: set[str] = set()
    for extra in extras:
        listed = table(locked, "extras").get(extra)
        for wanted in listed if isinstance(listed, list) else []:
            requirement = parse_requirement(text(wanted))
            if requirement is not None:
                by_extra.add(folded(requirement.name))
    for name, options in table(locked, "dependencies").items():
        is_extra = isinstance(options, dict) and options.get("optional") is True
        if not is_extra or folded(name) in by_extra:
            yield folded(name)


def read_uv(source: Source, path: str, members: set[str] | None = None) -> Reading:
    """uv.lock names the members of its workspace itself; `members` are the folders of those that are asked for."""
    packages = Packages("pypi", path)
    own: dict[str, dict[str, Any]] = {}
    own_names: dict[str, str] = {}
    versions: Versions = defaultdict(dict)
    locked: list[tuple[str | None, dict[str, Any]]] = []
    for one in tables(parse_toml(source.read(path), path), "package"):
        folder = _own_folder(one)
        if folder is not None:
            own[folder] = one
            own_names[folded(one.get("name"))] = folder
            continue
        purl = packages.add(text(one.get("name")), text(one.get("version")))
        locked.append((purl, one))
        if purl is not None:
            versions[folded(one.get("name"))][text(one.get("version"))] = purl
    for purl, one in locked:
        packages.link(purl, (found for _, wanted in _uv_needs(one) for found in _uv_find(wanted, versions)))
    chosen = set(own) if members is None else closure(members, lambda folder: _own_needs(own.get(folder), own_names))
    for folder in chosen & set(own):
        for scope, wanted in _uv_needs(own[folder]):
            for purl in _uv_find(wanted, versions):
                packages.direct(purl, scope)
    speaks_for = {folder_of(path)} | {found for folder in own if (found := beside(path, folder)) is not None}
    return packages.reading(only_reached=members is not None, speaks_for=speaks_for)


def _own_folder(locked: dict[str, Any]) -> str | None:
    """The folder of a package that is part of the repository, else None."""
    source = table(locked, "source")
    for kind in ("virtual", "editable", "directory"):
        if isinstance(folder := source.get(kind), str):
            return "" if folder == "." else folder
    return None


def _own_needs(member: dict[str, Any] | None, own_names: dict[str, str]) -> Iterator[str]:
    for _, wanted in _uv_needs(member or {}):
        if (folder := own_names.get(folded(wanted.get("name")))) is not None:
            yield folder


def _uv_needs(locked: dict[str, Any]) -> Iterator[tuple[Scope, dict[str, Any]]]:
    yield from (("required", one) for one in tables(locked, "dependencies"))
    optional = table(locked, "optional-dependencies")
    yield from (("optional", one) for extra in optional for one in tables(optional, extra))
    dev = table(locked, "dev-dependencies")
    yield from (("dev", one) for group in dev for one in tables(dev, group))


def _uv_find(wanted: dict[str, Any], versions: Versions) -> Collection[str]:
    """uv names the version only where the lockfile holds several."""
    found = versions.get(folded(wanted.get("name")), {})
    version = text(wanted.get("version"))
    return [found[version]] if version in found else found.values()
