"""Rust: Cargo.lock with the Cargo.toml of each member, and Cargo.toml alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from holdfast.extraction.manifests.packages import Packages, Reading, closure, strongest
from holdfast.extraction.manifests.pyproject import table, tables, text
from holdfast.extraction.manifests.source import ManifestProblem, Source, folder_of, inside, name_of, parse_toml
from holdfast.extraction.model import Scope

EXACT_VERSION = re.compile(r"=\s*(\d+\.\d+\.\d+[0-9A-Za-z.+-]*)")
_TABLES: dict[str, Scope] = {"dependencies": "required", "build-dependencies": "required", "dev-dependencies": "dev"}


def read_lock(source: Source, path: str, members: set[str] | None = None) -> Reading:
    """Packages without a source are the repository's own; what they need is direct."""
    packages = Packages("cargo", path)
    own: dict[str, dict[str, Any]] = {}
    purls: dict[tuple[str, str], str | None] = {}
    newest: dict[str, str] = {}
    locked = tables(parse_toml(source.read(path), path), "package")
    for one in locked:
        name, version = text(one.get("name")), text(one.get("version"))
        if "source" not in one:
            own[name] = one
            continue
        purls[name, version] = packages.add(name, version)
        newest[name] = version
    for one in locked:
        if "source" in one:
            purl = purls[text(one.get("name")), text(one.get("version"))]
            packages.link(purl, (purls.get((name, version or newest.get(name, ""))) for name, version in _needs(one)))
    documents = _documents(source, path, members)
    declared = _declared_by_members(documents)
    chosen = set(own)
    if members is not None:
        chosen = closure(declared, lambda name: (needed for needed, _ in _needs(own.get(name, {})) if needed in own))
    for member_name in chosen & set(own):
        scopes = declared.get(member_name, {})
        for name, version in _needs(own[member_name]):
            packages.direct(purls.get((name, version or newest.get(name, ""))), scopes.get(name, "required"))
    speaks_for = {folder_of(path)} | {folder for folder, document in documents.items() if _package_name(document) in own}
    return packages.reading(only_reached=members is not None, speaks_for=speaks_for)


def _needs(locked: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """`name`, `name version` or `name version (source)`: cargo writes as much as is needed to tell them apart."""
    listed = locked.get("dependencies")
    for one in listed if isinstance(listed, list) else []:
        words = text(one).split(" ")
        yield words[0], words[1] if len(words) > 1 else ""


def _documents(source: Source, path: str, members: set[str] | None) -> dict[str, dict[str, Any]]:
    """Folder -> its Cargo.toml: of the members, or of all below the lockfile."""
    folder = folder_of(path)
    if members is not None:
        folders = [inside(folder, member) if member else folder for member in sorted(members)]
    else:
        tomls = [found for found in source.found if name_of(found) == "Cargo.toml"]
        folders = [folder, *(folder_of(found) for found in tomls if not folder or found.startswith(f"{folder}/"))]
    return {one: _document_or_nothing(source, inside(one, "Cargo.toml")) for one in dict.fromkeys(folders)}


def _declared_by_members(documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Scope]]:
    """Name of a member -> what it declares -> scope."""
    declared: dict[str, dict[str, Scope]] = {}
    for document in documents.values():
        if name := _package_name(document):
            scopes = declared.setdefault(name, {})
            for crate, scope, _ in _declared_in(document):
                scopes[crate] = strongest(scope, scopes.get(crate))
    return declared


def _package_name(document: dict[str, Any]) -> str:
    return text(table(document, "package").get("name"))


def _document_or_nothing(source: Source, path: str) -> dict[str, Any]:
    """A member's Cargo.toml that cannot be read costs its scopes, not the whole lockfile."""
    try:
        return parse_toml(source.read(path), path)
    except ManifestProblem:
        return {}


def read_toml(source: Source, path: str) -> Reading:
    """Cargo.toml alone: the direct dependencies, with a version only where one is named exactly."""
    packages = Packages("cargo", path)
    for name, scope, version in _declared_in(parse_toml(source.read(path), path)):
        packages.direct(packages.add(name, version), scope)
    return packages.reading()


def _declared_in(document: dict[str, Any]) -> Iterator[tuple[str, Scope, str]]:
    shared = table(document, "workspace", "dependencies")
    platforms = [one for one in table(document, "target").values() if isinstance(one, dict)]
    for where in (document, *platforms):
        for name_of_table, scope in _TABLES.items():
            for key, wanted in table(where, name_of_table).items():
                options = wanted if isinstance(wanted, dict) else {"version": wanted}
                if options.get("workspace") is True:
                    given = shared.get(key, {})
                    options = {**(given if isinstance(given, dict) else {"version": given}), **options}
                if "path" in options and "version" not in options:
                    continue
                exact = EXACT_VERSION.fullmatch(text(options.get("version")).strip())
                is_optional = options.get("optional") is True and scope == "required"
                yield text(options.get("package")) or key, "optional" if is_optional else scope, exact[1] if exact else ""
