"""Software bills of materials: write an inventory as CycloneDX 1.6, read any CycloneDX JSON back into components."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component as CdxComponent
from cyclonedx.model.component import ComponentScope, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.schema.schema import SchemaVersion1Dot6
from packageurl import PackageURL

from holdfast.extraction.manifests.packages import (
    COMPONENTS_MAX,
    EDGES_MAX,
    Identity,
    closure,
    identify,
    identify_purl,
    strongest,
)
from holdfast.extraction.manifests.source import BYTES_PER_FILE_MAX, ManifestProblem, shown
from holdfast.extraction.model import Component, Inventory, Problem, Scope

SBOM_BYTES_MAX = 4 * BYTES_PER_FILE_MAX
NESTING_MAX = 16

MANIFEST_PROPERTY = "SrcFile"
"""The name that cdxgen uses, too."""
DEV_PROPERTIES = {"holdfast:scope": "dev", "cdx:npm:package:development": "true"}
DIRECT_PROPERTY = "holdfast:direct"
"""What the graph alone cannot tell: `no`, though nothing points at the package, and `unknown`."""


def fingerprint(components: Iterable[Component]) -> str:
    """The same for the same components and edges, whatever order, time or tool they came by."""
    told = {True: "direct", False: "transitive", None: "unknown"}
    rows = sorted([one.manifest, one.purl, one.scope, told[one.direct], *sorted(set(one.depends_on))] for one in components)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


# -- writing -----------------------------------------------------------------------------------------------------------


def write_sbom(inventory: Inventory, *, name: str, version: str = "") -> bytes:
    """CycloneDX 1.6 JSON; the same inventory gives the same bytes, apart from the time of writing."""
    root = CdxComponent(name=name, version=version or None, type=ComponentType.APPLICATION, bom_ref="root")
    by_purl: dict[str, list[Component]] = {}
    for one in inventory.components:
        by_purl.setdefault(one.purl, []).append(one)
    written = {purl: _written(same) for purl, same in by_purl.items()}
    edges = [Dependency(root.bom_ref, _refs((purl for purl, same in by_purl.items() if any(c.direct for c in same)), written))]
    for purl, same in by_purl.items():
        needs = {needed for one in same for needed in one.depends_on}
        edges.append(Dependency(written[purl].bom_ref, _refs(needs, written)))
    bom = Bom(
        components=written.values(),
        dependencies=edges,
        metadata=BomMetaData(component=root),
        serial_number=uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {version} {fingerprint(inventory.components)}"),
    )
    # Not by the library's own writer: it compares each component with all edges, and warns of a root without any.
    document = msgspec.json.decode(bom.as_json(view_=SchemaVersion1Dot6))  # type: ignore[attr-defined]
    for one in document.get("components", ()):
        one["purl"] = one["bom-ref"]  # the library would write the names of npm in lower case
    head = {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6"}
    return msgspec.json.format(msgspec.json.encode({**head, **document}), indent=1)


def _refs(purls: Iterable[str], written: dict[str, CdxComponent]) -> list[Dependency]:
    return [Dependency(written[purl].bom_ref) for purl in sorted(purls) if purl in written]


def _written(same: list[Component]) -> CdxComponent:
    """One package, found in one or more manifests."""
    first = same[0]
    scope = first.scope
    for one in same:
        scope = strongest(one.scope, scope)
    properties = [Property(name=MANIFEST_PROPERTY, value=one.manifest) for one in same]
    if scope == "dev":
        properties.append(Property(name="holdfast:scope", value="dev"))
    if not any(one.direct for one in same):
        is_unknown = all(one.direct is None for one in same)
        properties.append(Property(name=DIRECT_PROPERTY, value="unknown" if is_unknown else "no"))
    purl = PackageURL.from_string(first.purl)
    return CdxComponent(
        name=first.name.rpartition("/")[2] if first.ecosystem == "npm" else purl.name,
        group=purl.namespace,
        version=first.version or None,
        purl=purl,
        bom_ref=first.purl,
        scope=ComponentScope.REQUIRED if scope == "required" else ComponentScope.OPTIONAL,
        properties=properties,
    )


# -- reading -----------------------------------------------------------------------------------------------------------


class _Property(msgspec.Struct):
    name: str = ""
    value: str | None = None


class _Read(msgspec.Struct, rename={"bom_ref": "bom-ref"}):
    bom_ref: str | None = None
    name: Any = None
    purl: str | None = None
    scope: str | None = None
    properties: list[_Property] = []
    components: list[_Read] = []

    def values(self, name: str) -> list[str]:
        return [one.value for one in self.properties if one.name == name and one.value]


class _Metadata(msgspec.Struct):
    component: _Read | None = None


class _Edges(msgspec.Struct, rename="camel"):
    ref: str
    depends_on: list[str] = []


class _Document(msgspec.Struct, rename="camel"):
    bom_format: str = ""
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    components: list[_Read] = []
    dependencies: list[_Edges] = []


def read_sbom(data: bytes, *, checkout: Path | None = None, inventory: Inventory | None = None) -> Inventory:
    """The components of a CycloneDX document.

    Direct is what the root points at. Where the graph does not reach a component at all, our own reading of the manifests
    (`inventory`) decides, and without it nobody can tell. `checkout` is where the tool found the files, to cut it off.
    """
    document = _parse(data)
    inventory = inventory or Inventory()
    roots = _flat([document.metadata.component] if document.metadata.component else [])
    own = {ref for root in roots for ref in (root.bom_ref, root.purl) if ref}
    identities: dict[str, Identity] = {}
    kept: list[tuple[Identity, _Read]] = []
    nameless = 0
    for read in _flat(document.components):
        if {read.bom_ref, read.purl} & own:
            continue
        identity = _identity(read)
        if identity is None:
            nameless += 1
            continue
        kept.append((identity, read))
        identities[read.bom_ref or read.purl or ""] = identity
    graph = _graph(document.dependencies, identities, own)
    components = _components(kept, graph, own, inventory, checkout)
    problems = list(inventory.problems)
    if nameless:
        message = f"{nameless} components have no package URL; left out."
        problems.append(Problem(manifest="sbom", code="name_invalid", message=message))
    return Inventory(components=components, manifests=inventory.manifests, problems=problems)


def _identity(read: _Read) -> Identity | None:
    """Many tools write the purls of npm in lower case; the name beside it is as the registry and the advisories have it."""
    found = identify_purl(read.purl or "")
    if found is None or found.ecosystem != "npm" or not isinstance(read.name, str):
        return found
    scope, slash, last = found.name.rpartition("/")
    name = read.name.rpartition("/")[2]
    return identify("npm", f"{scope}{slash}{name}", found.version) if name.lower() == last else found


def _parse(data: bytes) -> _Document:
    if len(data) > SBOM_BYTES_MAX:
        raise ManifestProblem("sbom", f"is larger than {SBOM_BYTES_MAX // 1024**2} MiB.", "too_large")
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ManifestProblem("sbom", "is not CycloneDX JSON.") from error
    if document.bom_format != "CycloneDX":
        raise ManifestProblem("sbom", "is not CycloneDX JSON.")
    if sum(len(one.depends_on) for one in document.dependencies) > EDGES_MAX:
        raise ManifestProblem("sbom", f"has more than {EDGES_MAX} edges.", "too_large")
    return document


def _flat(components: list[_Read]) -> list[_Read]:
    """Components may hold components."""
    level, flat = components, list(components)
    for _ in range(NESTING_MAX):
        level = [inner for one in level for inner in one.components]
        flat += level
    if len(flat) > COMPONENTS_MAX:
        raise ManifestProblem("sbom", f"names more than {COMPONENTS_MAX} packages.", "too_large")
    return flat


def _graph(edges: list[_Edges], identities: dict[str, Identity], own: set[str]) -> dict[str, set[str]]:
    """purl, or reference of a root -> purls and roots it points at; references that lead nowhere are dropped."""
    graph: dict[str, set[str]] = {}

    def place(ref: str) -> str | None:
        return ref if ref in own else identities[ref].purl if ref in identities else None

    for one in edges:
        if (start := place(one.ref)) is not None:
            graph.setdefault(start, set()).update(end for ref in one.depends_on if (end := place(ref)) is not None)
    return graph


def _components(
    kept: list[tuple[Identity, _Read]], graph: dict[str, set[str]], own: set[str], inventory: Inventory, checkout: Path | None
) -> list[Component]:
    direct = {purl for root in own for purl in graph.get(root, ())} - own
    reached = closure(direct, lambda purl: graph.get(purl, ()))
    known: dict[str, list[Component]] = {}
    for one in inventory.components:
        known.setdefault(one.purl, []).append(one)
    components: dict[tuple[str, str], Component] = {}
    for identity, read in kept:
        purl = identity.purl
        by_tool = [relative(path, checkout) for path in read.values(MANIFEST_PROPERTY)]
        for manifest in by_tool or [one.manifest for one in known.get(purl, ())] or [""]:
            components[manifest, purl] = Component(
                purl=purl,
                name=identity.name,
                version=identity.version,
                ecosystem=identity.ecosystem,
                scope=_scope(read, known.get(purl, [])),
                direct=_direct(read, [one.direct for one in known.get(purl, ())], purl in direct, purl in reached),
                manifest=manifest,
                depends_on=sorted(graph.get(purl, set()) - own - {purl}),
            )
    return [component for _, component in sorted(components.items())]


def _direct(read: _Read, by_us: list[bool | None], is_root_edge: bool, is_reached: bool) -> bool | None:
    if is_root_edge or True in by_us:
        return True
    said = read.values(DIRECT_PROPERTY)
    if False in by_us or "no" in said or (is_reached and "unknown" not in said):
        return False
    return None


def _scope(read: _Read, known: list[Component]) -> Scope:
    """Our own readers know what is for development in every ecosystem; other tools often do not."""
    if known:
        return min((one.scope for one in known), key=lambda scope: ("required", "optional", "dev").index(scope))
    if read.scope == "excluded" or any(value in read.values(name) for name, value in DEV_PROPERTIES.items()):
        return "dev"
    return "optional" if read.scope == "optional" else "required"


def relative(path: str, checkout: Path | None) -> str:
    """A path as it is in the repository: tools write it from the root of the machine, or from some folder on the way."""
    written = PurePosixPath(path)
    if ".." in written.parts:
        return shown(written.name)
    if checkout is None:
        return shown(path)
    if written.is_absolute():
        bases = [base for base in (checkout, checkout.resolve()) if written.is_relative_to(base)]
        return shown(str(written.relative_to(bases[0])) if bases else written.name)
    around = checkout.resolve().parts
    if not _exists(checkout, path):
        for start in range(1, len(around)):
            tail = PurePosixPath(*around[start:])
            if written.is_relative_to(tail):
                return shown(str(written.relative_to(tail)))
    return shown(str(written))


def _exists(checkout: Path, path: str) -> bool:
    try:
        return (checkout / path).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
