"""What the steps of one extraction hand to one another, and what they may use."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.extraction.advisories import Matches, Status
from holdfast.extraction.kinds import KindName, Row
from holdfast.extraction.model import Finding, Inventory, Secret
from holdfast.pipeline import Context, ToolResult

HOSTS = {"github.com": "GitHub", "gitlab.com": "GitLab", "bitbucket.org": "Bitbucket"}
REPOSITORY_GB_MAX = 5.0
DEPSCAN_PLACE = "/tmp/depscan-cache"
# Scanners ask git about the folder that they read, and git would start what the settings of that folder name.
QUIET_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "core.fsmonitor",
    "GIT_CONFIG_VALUE_0": "false",
    "GIT_CONFIG_KEY_1": "core.hooksPath",
    "GIT_CONFIG_VALUE_1": os.devnull,
}


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be extracted."""

    id: str
    source: str
    """An https address without credentials, or a folder of this machine."""
    branch: str | None = None
    """None: the one that the repository calls its default."""
    path: str = ""
    """The package path: the folder whose dependencies count; "" is the whole repository."""
    name: str = ""
    """As it stands in the SBOM; the last part of the source, unless told."""
    provider: str = ""
    """As people write it; from the source's host, unless told."""

    @property
    def is_address(self) -> bool:
        return "://" in self.source

    @property
    def shown_name(self) -> str:
        return self.name or self.source.rstrip("/").rpartition("/")[2].removesuffix(".git") or "repository"

    @property
    def shown_provider(self) -> str:
        if self.provider:
            return self.provider
        if not self.is_address:
            return "local folder"
        try:
            host = urlsplit(self.source).hostname or ""
        except ValueError:  # half an IPv6 address: the clone refuses it in words
            host = ""
        return HOSTS.get(host, host or "local folder")


class Credentials:
    """For one run, in memory alone: no repr, no encoder and no log shows the token."""

    def __init__(self, token: str, user: str = "x-access-token") -> None:
        self.user = user
        self.token = token


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How extractions are done on this machine."""

    advisories: Path | None = None
    """The file that `holdfast advisories update` writes."""
    depscan_database: Path | None = None
    """Where dep-scan's own database is mounted; None: dep-scan is not asked."""
    rules: Path | None = None
    """Rules for Semgrep, a file or a folder; None: those that come with Holdfast."""
    semgrep: str = "semgrep"
    """The program; `opengrep` understands the same calls."""
    storage: str | None = None
    """Where reports go: a folder, or s3://bucket/prefix."""
    full_history: bool = False
    """Clone all commits, so that secrets of the past are found, too."""
    repository_gb_max: float = REPOSITORY_GB_MAX
    trusted: bool = False
    """Asked by whoever sits at this machine: local folders, plain http and private addresses are theirs to choose."""
    hosts_allowed: tuple[str, ...] = ()
    """Hosts with private addresses that everybody may name."""
    registry: str | None = None
    """Who is asked for licenses and the like, `https://api.deps.dev`; None: nobody, because it would learn what is used."""
    profile: Literal["generic", "research"] = "generic"
    """`research`: dep-scan also looks whether vulnerable code can be reached, for up to three hours."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Options:
        """For servers and workers; the command line has options of its own."""
        profile = environment.get("HOLDFAST_EXTRACTION_PROFILE") or "generic"
        if profile not in ("generic", "research"):
            raise ConfigError(f"HOLDFAST_EXTRACTION_PROFILE must be generic or research, not {profile!r:.50}.")
        depscan = Path(environment.get("DEPSCAN_CACHE_DIR") or DEPSCAN_PLACE)
        return cls(
            advisories=_path(environment.get("HOLDFAST_ADVISORIES")),
            depscan_database=depscan if "DEPSCAN_CACHE_DIR" in environment or has_depscan_database(depscan) else None,
            rules=_path(environment.get("HOLDFAST_SEMGREP_RULES")),
            storage=environment.get("HOLDFAST_REPORTS") or None,
            hosts_allowed=tuple(environment.get("HOLDFAST_HOSTS_ALLOWED", "").lower().replace(",", " ").split()),
            registry=environment.get("HOLDFAST_REGISTRY_URL") or None,
            profile="research" if profile == "research" else "generic",
        )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def has_depscan_database(folder: Path) -> bool:
    try:
        return any(folder.glob("data*.vdb*"))
    except OSError:
        return False


class Keeper(Protocol):
    """Where results go as they are found; each call replaces what the project had of that kind."""

    async def save_dependencies(self, inventory: Inventory) -> None: ...

    async def save_scan(self, kind: KindName, rows: Sequence[Row], *, details: Mapping[str, Any] | None = None) -> None: ...

    async def load(self, kind: KindName) -> tuple[list[Any], dict[str, Any]] | None:
        """What this extraction has kept of a kind, with its details; None: nothing, or not scanned."""
        ...


class ExtractionContext(Context):
    """One extraction. A list that is None was not scanned, which is not the same as nothing found."""

    def __init__(
        self,
        project: Project,
        options: Options | None = None,
        *,
        credentials: Credentials | None = None,
        sign_in: Callable[[], Awaitable[Credentials | None]] | None = None,
        keeper: Keeper | None = None,
    ) -> None:
        self.options = options or Options()
        self.project = project
        self.keeper = keeper
        """None: nothing is kept beyond the run."""
        self.credentials = credentials
        self.sign_in = sign_in
        """Opens or mints the credentials when they are needed, inside the step that is told of its failures."""
        self.checkout = Path()
        """The repository's files, once it is cloned."""
        self.commit: str | None = None
        self.history_is_there = False
        self.cdxgen_ran = False
        self.inventory = Inventory()
        self.vulnerabilities: Matches | None = None
        self.advisory_status: Status | None = None
        self.findings: list[Finding] | None = None
        self.secrets: list[Secret] | None = None
        self.reports: dict[str, bytes] = {}
        """Name -> content, for the storage."""
        super().__init__(**_words(project, self.options))

    @property
    def folder(self) -> Path:
        """The package path in the checkout."""
        return self.checkout / self.project.path.strip("/")

    async def tool(
        self, argv: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> ToolResult:
        return await super().tool(argv, env={**QUIET_GIT, **(env or {})}, **options)


def _words(project: Project, options: Options) -> dict[str, Any]:
    """What fills the places of messages."""
    provider = project.shown_provider
    return {
        "provider": provider,
        "branch": project.branch or "the default branch",
        "path": project.path or "/",
        "limit": f"{options.repository_gb_max:g}",
        "reconnect": (
            "your GitHub App installation may need to be reconnected"
            if provider == "GitHub"
            else f"reconnect your {provider} integration in Organization Settings"
        ),
    }
