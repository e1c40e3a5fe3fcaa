"""pyproject.toml: what a Python project declares, by the standard's tables and by Poetry's and uv's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from holdfast.extraction.manifests.packages import Packages, Reading, fold
from holdfast.extraction.manifests.source import Source, parse_toml
from holdfast.extraction.model import Scope

REQUIREMENT_LENGTH_MAX = 4_096


class Declared(NamedTuple):
    """A dependency as somebody wrote it down."""

    name: str
    version: str
    scope: Scope
    extras: frozenset[str] = frozenset()


def read_pyproject(source: Source, path: str) -> Reading:
    """pyproject.toml alone: the direct dependencies, with a version only where one is named exactly."""
    packages = Packages("pypi", path)
    for one in declared_in(parse_toml(source.read(path), path)):
        packages.direct(packages.add(one.name, one.version), one.scope)
    return packages.reading()


def declared_in(pyproject: dict[str, Any]) -> list[Declared]:
    return [*_standard(pyproject), *_poetry(pyproject)]


def _standard(pyproject: dict[str, Any]) -> Iterator[Declared]:
    project = table(pyproject, "project")
    yield from _requirements(project.get("dependencies"), "required")
    for listed in table(project, "optional-dependencies").values():
        yield from _requirements(listed, "optional")
    # A group may include another by {include-group = "…"}; every group is read in its own right.
    for listed in table(pyproject, "dependency-groups").values():
        yield from _requirements(listed, "dev")
    yield from _requirements(table(pyproject, "tool", "uv").get("dev-dependencies"), "dev")


def _requirements(listed: object, scope: Scope) -> Iterator[Declared]:
    for text in listed if isinstance(listed, list) else []:
        requirement = parse_requirement(text) if isinstance(text, str) else None
        if requirement is not None:
            yield Declared(requirement.name, exact_version(requirement), scope, frozenset(requirement.extras))


def _poetry(pyproject: dict[str, Any]) -> Iterator[Declared]:
    poetry = table(pyproject, "tool", "poetry")
    yield from _poetry_table(table(poetry, "dependencies"), "required")
    yield from _poetry_table(table(poetry, "dev-dependencies"), "dev")
    for group in table(poetry, "group").values():
        yield from _poetry_table(table({"group": group}, "group", "dependencies"), "dev")


def _poetry_table(dependencies: dict[str, Any], scope: Scope) -> Iterator[Declared]:
    for name, wanted in dependencies.items():
        if name == "python":
            continue
        for one in wanted if isinstance(wanted, list) else [wanted]:
            options = one if isinstance(one, dict) else {"version": one}
            if "path" in options:
                continue
            version = options.get("version")
            extras = options.get("extras")
            yield Declared(
                name,
                _poetry_version(version) if isinstance(version, str) else "",
                "optional" if options.get("optional") is True and scope == "required" else scope,
                frozenset(extra for extra in extras if isinstance(extra, str)) if isinstance(extras, list) else frozenset(),
            )


def _poetry_version(wanted: str) -> str:
    """Poetry takes a bare version as an exact one."""
    try:
        return str(Version(wanted.strip().removeprefix("==")))
    except InvalidVersion:
        return ""


def parse_requirement(text: str) -> Requirement | None:
    if len(text) > REQUIREMENT_LENGTH_MAX:
        return None
    try:
        return Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None


def exact_version(requirement: Requirement) -> str:
    """The one version that a requirement allows, else ""."""
    for specifier in requirement.specifier:
        if specifier.operator in ("==", "===") and not specifier.version.endswith(".*"):
            return specifier.version
    return ""


def table(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """A table of a TOML document, empty where there is none."""
    for name in names:
        inner = document.get(name)
        if not isinstance(inner, dict):
            return {}
        document = inner
    return document


def tables(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """An array of tables, without what is not a table."""
    listed = document.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def folded(name: object) -> str:
    return fold(name) if isinstance(name, str) else ""


def text(value: object) -> str:
    return value if isinstance(value, str) else ""
