"""What an extraction finds, as plain records that go to JSON and to the database as they are."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["required", "optional", "dev"]
"""What a dependency is for; a package that serves several ends has the first of them in this order."""

SCOPES: tuple[Scope, ...] = ("required", "optional", "dev")


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A package that a manifest names, or that one of those packages needs."""

    purl: str
    """Without qualifiers, so that two tools that see the same package write the same text."""
    name: str
    """As advisories write it: `@scope/name`, `group:artifact`, a Go module path, a folded PyPI name."""
    version: str
    """Empty where the manifest allows several and no lockfile says which."""
    ecosystem: str
    """As OSV writes it: npm, PyPI, Go, crates.io, Maven, …"""
    scope: Scope = "required"
    direct: bool | None = None
    """None: nobody can tell."""
    manifest: str = ""
    """Path from the root of the repository."""
    depends_on: list[str] = []


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A file that declares or locks dependencies."""

    path: str
    ecosystem: str
    read: bool
    """False: known by its name, but the built-in readers do not understand it."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What a manifest did not tell, or why it could not be read."""

    manifest: str
    code: str
    message: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of a folder, with the manifests they come from and what could not be read."""

    components: list[Component] = []
    manifests: list[Manifest] = []
    problems: list[Problem] = []

    @property
    def without_lockfile(self) -> list[str]:
        """Manifests that had to be read alone: only direct dependencies are known, and ranges instead of versions."""
        return sorted({problem.manifest for problem in self.problems if problem.code == "no_lockfile"})


class Vulnerability(msgspec.Struct, frozen=True, kw_only=True):
    """An advisory that holds for one component."""

    id: str
    purl: str
    aliases: list[str] = []
    severity: Literal["critical", "high", "medium", "low", "unknown"] = "unknown"
    cvss_score: float | None = None
    cvss_vector: str | None = None
    fixed_in: list[str] = []
    summary: str = ""
    epss: float | None = None
    """None: no score is known, which is not the same as 0."""
    percentile: float | None = None
    kev: bool | None = None
    """None: no catalogue of exploited vulnerabilities was at hand."""
    reachable: bool | None = None
    """Whether the code at hand leads there; None: nobody has found out."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the code that a rule of the static analysis points at."""

    rule: str
    path: str
    line: int
    severity: Literal["critical", "high", "medium", "low", "info"]
    message: str
    fingerprint: str
    """Stays the same when the code around the place moves."""
    end_line: int | None = None
    cwes: list[str] = []


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret lies open; never the secret itself."""

    kind: str
    path: str
    line: int
    fingerprint: str
    verified: bool | None = None
    """None: nobody tried it."""
    commit: str | None = None
    """None: in the files as they are checked out."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A file that an extraction leaves behind."""

    name: str
    location: str
    media_type: str
    bytes: int
