"""Maven: the dependencies of a pom.xml, with properties, managed versions and parents of the same repository."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.extraction.manifests.packages import Packages, Reading
from holdfast.extraction.manifests.source import ManifestProblem, Source, beside, folder_of, inside, name_of
from holdfast.extraction.manifests.xml import Element, parse_xml
from holdfast.extraction.model import Scope

PARENTS_MAX = 10
PROPERTY_ROUNDS_MAX = 10
VALUE_LENGTH_MAX = 512
PROPERTY = re.compile(r"\$\{([^${}]{1,200})\}")
VERSION_ONLY = re.compile(r"\[([^,\[\]()]+)\]|([^,\[\]()${}\s]+)")
_SCOPES: dict[str, Scope] = {"test": "dev", "provided": "optional", "system": "optional"}


@dataclass
class _Pom:
    """A pom together with what it inherits."""

    properties: dict[str, str] = field(default_factory=dict)
    managed: dict[str, tuple[str, str]] = field(default_factory=dict)
    """group:artifact -> version and scope."""
    dependencies: dict[str, Element] = field(default_factory=dict)

    def fill_in(self, text: str) -> str:
        """Properties may name each other; one that names itself stays as it is."""
        if len(text) > VALUE_LENGTH_MAX:
            return text
        for _ in range(PROPERTY_ROUNDS_MAX):
            filled = PROPERTY.sub(lambda found: self.properties.get(found[1], found[0]), text)
            if filled == text or len(filled) > VALUE_LENGTH_MAX:
                return text
            text = filled
        return text


def read_pom(source: Source, path: str) -> Reading:
    """Only direct dependencies: what those need is written in poms that are not in the repository."""
    packages = Packages("maven", path)
    pom = _load(source, path)
    own = source.once("own maven modules", _own_modules)
    unversioned = 0
    for dependency in pom.dependencies.values():
        group, artifact = pom.fill_in(dependency.value("groupId")), pom.fill_in(dependency.value("artifactId"))
        managed_version, managed_scope = pom.managed.get(f"{group}:{artifact}", ("", ""))
        if not group or not artifact or f"{group}:{artifact}" in own:
            continue
        version = _one_version(pom.fill_in(dependency.value("version") or managed_version))
        unversioned += not version
        scope = _SCOPES.get(pom.fill_in(dependency.value("scope") or managed_scope), "required")
        if dependency.value("optional") == "true" and scope == "required":
            scope = "optional"
        packages.direct(packages.add(f"{group}:{artifact}", version), scope)
    if pom.dependencies:
        packages.note("direct_only", "a pom names direct dependencies only; install cdxgen and Maven for what those need.")
    if unversioned:
        packages.note("unpinned", f"{unversioned} dependencies get their version from outside the repository.")
    return packages.reading()


def _one_version(text: str) -> str:
    """A version or `[version]`; a range or an unknown property is none."""
    found = VERSION_ONLY.fullmatch(text)
    return (found[1] or found[2]) if found else ""


def _load(source: Source, path: str) -> _Pom:
    """The pom on top of its parents, as far as they are in the repository."""
    chain = [_project(source, path)]
    seen = {path}
    while len(chain) <= PARENTS_MAX and (parent := _parent_path(source, path, chain[-1])) is not None and parent not in seen:
        seen.add(parent)
        try:
            chain.append(_project(source, parent))
        except ManifestProblem:
            break
        path = parent
    pom = _Pom()
    for project in reversed(chain):
        _lay_over(pom, project)
    return pom


def _project(source: Source, path: str) -> Element:
    return next(parse_xml(source.read(path), path).all("project"), Element("project"))


def _parent_path(source: Source, path: str, project: Element) -> str | None:
    parent = next(project.all("parent"), None)
    if parent is None:
        return None
    written = next(parent.all("relativePath"), None)
    place = "../pom.xml" if written is None else written.text.strip()
    if not place:
        return None
    if not place.endswith(".xml"):
        place = f"{place}/pom.xml"
    found = beside(path, place)
    return found if found is not None and source.exists(found) else None


def _lay_over(pom: _Pom, project: Element) -> None:
    for properties in project.all("properties"):
        values = {one.name: one.text.strip() for one in properties.children}
        pom.properties.update({name: value for name, value in values.items() if len(value) <= VALUE_LENGTH_MAX})
    for name in ("groupId", "artifactId", "version"):
        value = (project.value(name) or project.value("parent", name))[:VALUE_LENGTH_MAX]
        pom.properties[f"project.{name}"] = pom.properties[f"pom.{name}"] = pom.properties[name] = value
        pom.properties[f"project.parent.{name}"] = project.value("parent", name)[:VALUE_LENGTH_MAX]
    for managed in project.all("dependencyManagement", "dependencies", "dependency"):
        key = f"{pom.fill_in(managed.value('groupId'))}:{pom.fill_in(managed.value('artifactId'))}"
        pom.managed[key] = (managed.value("version"), managed.value("scope"))
    for dependency in project.all("dependencies", "dependency"):
        parts = ("groupId", "artifactId", "type", "classifier")
        pom.dependencies[":".join(dependency.value(part) for part in parts)] = dependency


def _own_modules(source: Source) -> set[str]:
    """group:artifact of every pom in the folder that is read: the repository's own parts are no dependencies."""
    own = set()
    for place in source.found:
        if name_of(place) == "pom.xml":
            try:
                project = _project(source, inside(folder_of(place), "pom.xml"))
            except ManifestProblem:
                continue
            own.add(f"{project.value('groupId') or project.value('parent', 'groupId')}:{project.value('artifactId')}")
    return own
