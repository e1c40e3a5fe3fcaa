"""How each ecosystem orders versions and folds names. Only ecosystems whose order is exact here are covered."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from packaging.version import InvalidVersion, Version

from holdfast.extraction.advisories.errors import NotComparable
from holdfast.extraction.advisories.maven import MavenVersion

VERSION_CHARS_MAX = 128
_SEMVER = re.compile(r"[vV]?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]*)?", re.ASCII)
_PLAIN = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_BUILD = re.compile(r"\+.*")


def _semver(text: str) -> Any:
    """Precedence of Semantic Versioning 2.0.0, build metadata left out; a missing minor or patch number is 0."""
    match = _SEMVER.fullmatch(text)
    if not match:
        raise ValueError(text)
    numbers = tuple(int(number or 0) for number in match.groups()[:3])
    if match[4] is None:
        return numbers, (1,)
    parts = match[4].split(".")
    if not all(parts):
        raise ValueError(text)
    return numbers, (0, *((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts))


def _python(text: str) -> Any:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(text) from error


_ORDERS: dict[str, Callable[[str], Any]] = {
    "npm": _semver,
    "PyPI": _python,
    "Go": _semver,
    "crates.io": _semver,
    "Maven": MavenVersion,
}
COVERED = frozenset(_ORDERS)
SEMVER = "npm"
"""Stands for the order of a range of type SEMVER, whatever its ecosystem."""


def base_ecosystem(ecosystem: str) -> str:
    """`Maven:https://…` -> `Maven`: what comes after the colon narrows the place, not the order of versions."""
    return ecosystem.partition(":")[0]


def fold_name(ecosystem: str, name: str) -> str:
    """One spelling for the names that a registry holds to be the same; npm, Go and Maven tell capitals apart."""
    if ecosystem == "PyPI":
        return re.sub(r"[-_.]+", "-", name).lower()
    if ecosystem == "crates.io":
        return name.replace("_", "-").lower()
    return name


def fold_version(ecosystem: str, version: str) -> str:
    """One spelling for equal versions, as far as a list of versions is concerned."""
    if len(version) > VERSION_CHARS_MAX:
        return version
    if ecosystem == "PyPI":
        return _folded_python(version)
    return version if ecosystem == "Maven" else _BUILD.sub("", version).lstrip("vV")


def installed(ecosystem: str, version: str) -> str:
    """Without PyPI's local label: `2.0.0+cu118` is a build of 2.0.0 and shares its advisories."""
    return version.partition("+")[0] if ecosystem == "PyPI" else version


@lru_cache(maxsize=65_536)
def parse(ecosystem: str, version: str) -> Any:
    """Something that can be compared with others of its ecosystem; `NotComparable` for all else."""
    if not version or len(version) > VERSION_CHARS_MAX or not version.isascii() or any(sign <= " " for sign in version):
        raise NotComparable(shown(version))
    try:
        return _ORDERS[ecosystem](version)
    except (KeyError, ValueError) as error:
        raise NotComparable(shown(version)) from error


def shown(version: str) -> str:
    """A version as it may stand in a message: short, one line."""
    return repr(version if len(version) <= 64 else f"{version[:60]}…")


def _folded_python(version: str) -> str:
    """As PEP 440 normalizes it, without zeros at the end of the release: 1.0.0rc1 -> 1rc1."""
    if _PLAIN.fullmatch(version):
        return _short_release(version)
    try:
        parsed = Version(version)
    except InvalidVersion:
        return version
    epoch, _, rest = str(parsed).rpartition("!")
    release = ".".join(map(str, parsed.release))
    return f"{epoch}{'!' if epoch else ''}{_short_release(release)}{rest.removeprefix(release)}"


def _short_release(release: str) -> str:
    return ".".join(str(int(part)) for part in re.sub(r"(?:\.0+)+$", "", release).split("."))
