"""The packages of one manifest while it is read, and how they become components."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from packageurl import PackageURL

from holdfast.extraction.manifests.source import ManifestProblem, shown
from holdfast.extraction.model import SCOPES, Component, Problem, Scope

COMPONENTS_MAX = 50_000
EDGES_MAX = 200_000
NAME_LENGTH_MAX = 512

ECOSYSTEMS = {
    "npm": "npm",
    "pypi": "PyPI",
    "golang": "Go",
    "cargo": "crates.io",
    "maven": "Maven",
    "nuget": "NuGet",
    "gem": "RubyGems",
    "composer": "Packagist",
    "pub": "Pub",
    "hex": "Hex",
    "github": "GitHub Actions",
}
"""purl type -> the name that OSV uses."""
AS_WRITTEN = "generic"
"""The purl type whose names nobody folds. npm has `JSONStream` beside `jsonstream`, but the library writes both the same."""


@dataclass(frozen=True)
class Identity:
    """One package in one version."""

    purl: str
    name: str
    version: str
    ecosystem: str


_NOT_IN_PURLS = frozenset({"", ".", "..", ":"})
"""As parts of a name: whoever reads such a purl takes them away, and sees another package."""


def identify(kind: str, name: str, version: str = "") -> Identity | None:
    """The identity of a package of a purl type, by the name its users write; None when the name cannot be one."""
    if not (_is_word(name) and (version == "" or _is_word(version))):
        return None
    if kind == "pypi":
        name = fold(name)
    separator = ":" if kind == "maven" else "/"
    if not all(name.split(separator)):
        return None
    namespace, _, last = name.rpartition(separator)
    if not _NOT_IN_PURLS.isdisjoint((*namespace.split("/"), last) if namespace else (last,)):
        return None
    if kind == "cpan" and namespace:  # an author, in capitals; so does the library write it
        namespace = namespace.upper()
        name = f"{namespace}/{last}"
    written_as = AS_WRITTEN if kind == "npm" else kind
    try:
        purl = PackageURL(type=written_as, namespace=namespace or None, name=last, version=version or None).to_string()
    except ValueError:
        return None
    return Identity(purl.replace(f"pkg:{written_as}/", f"pkg:{kind}/", 1), name, version, ECOSYSTEMS.get(kind, kind))


def identify_purl(text: str) -> Identity | None:
    """The identity that a purl of another tool names, written our way; None when it is none."""
    try:
        purl = PackageURL.from_string(text)
        name = purl.name
        if purl.type == "npm":
            as_written = unquote(PackageURL.from_string(text, normalize_purl=False).name).strip()
            name = as_written if as_written.lower() == name else name
    except ValueError:
        return None
    separator = ":" if purl.type == "maven" else "/"
    return identify(purl.type, f"{purl.namespace}{separator}{name}" if purl.namespace else name, purl.version or "")


def fold(name: str) -> str:
    """The one spelling of a PyPI name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_word(text: str) -> bool:
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable() and not any(letter.isspace() for letter in text)


@dataclass(frozen=True)
class Reading:
    """What one manifest says."""

    components: list[Component]
    problems: list[Problem]
    speaks_for: set[str] = field(default_factory=set)
    """The folders whose own manifests need no look any more."""


@dataclass
class _Package:
    identity: Identity
    needs: set[str] = field(default_factory=set)
    scope: Scope | None = None


class Packages:
    """Collects packages, their edges and the direct ones; `components` works out scopes by what reaches what."""

    def __init__(self, kind: str, manifest: str) -> None:
        self.kind = kind
        self.manifest = manifest
        self.problems: list[Problem] = []
        self._packages: dict[str, _Package] = {}
        self._direct: dict[str, Scope] = {}
        self._edges = 0
        self._unnamed = 0

    def add(self, name: str, version: str = "", scope: Scope | None = None) -> str | None:
        """Note a package and return its purl; `scope` is what the lockfile itself says."""
        identity = identify(self.kind, name, version)
        if identity is None:
            self._unnamed += 1
            return None
        package = self._packages.setdefault(identity.purl, _Package(identity))
        if len(self._packages) > COMPONENTS_MAX:
            raise ManifestProblem(shown(self.manifest), f"names more than {COMPONENTS_MAX} packages.", "too_large")
        if scope is not None:
            package.scope = strongest(scope, package.scope)
        return identity.purl

    def link(self, purl: str | None, needs: Iterable[str | None]) -> None:
        if purl is None:
            return
        for needed in needs:
            self._count_edge()
            if needed is not None and needed != purl:
                self._packages[purl].needs.add(needed)

    def direct(self, purl: str | None, scope: Scope) -> None:
        self._count_edge()
        if purl is not None:
            self._direct[purl] = strongest(scope, self._direct.get(purl))

    def _count_edge(self) -> None:
        self._edges += 1
        if self._edges > EDGES_MAX:
            raise ManifestProblem(shown(self.manifest), f"has more than {EDGES_MAX} edges.", "too_large")

    def note(self, code: str, message: str) -> None:
        self.problems.append(Problem(manifest=shown(self.manifest), code=code, message=message))

    def reading(self, *, direct_known: bool = True, only_reached: bool = False, speaks_for: Iterable[str] = ()) -> Reading:
        """With `only_reached`, what no direct dependency needs is left out: it belongs to other members of a workspace."""
        if self._unnamed:
            self.note("name_invalid", f"{self._unnamed} entries have a name or version that cannot be one; left out.")
        reached = self._scopes_by_reach()
        components = [
            Component(
                purl=purl,
                name=package.identity.name,
                version=package.identity.version,
                ecosystem=package.identity.ecosystem,
                scope=reached.get(purl) or package.scope or "required",
                direct=purl in self._direct if direct_known else None,
                manifest=shown(self.manifest),
                depends_on=sorted(package.needs),
            )
            for purl, package in sorted(self._packages.items())
            if purl in reached or not only_reached
        ]
        return Reading(components, self.problems, set(speaks_for))

    def _scopes_by_reach(self) -> dict[str, Scope]:
        reached: dict[str, Scope] = {}
        for scope in SCOPES:
            waiting = [purl for purl, own in self._direct.items() if own == scope]
            while waiting:
                purl = waiting.pop()
                if purl not in reached:
                    reached[purl] = scope
                    waiting.extend(self._packages[purl].needs)
        return reached


def closure(start: Iterable[str], next_of: Callable[[str], Iterable[str]]) -> set[str]:
    """Everything that can be reached."""
    reached: set[str] = set()
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting.extend(next_of(one))
    return reached


def strongest(scope: Scope, other: Scope | None) -> Scope:
    return scope if other is None else min(scope, other, key=SCOPES.index)
