"""What the secret scanners write, read without the secrets."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.extraction.manifests.source import NOT_OURS, shown
from holdfast.extraction.model import Secret
from holdfast.extraction.steps.reading import Ordinals, line_number, parse_report, path_in

KINGFISHER_FOUND = 200
_LOCKFILES = r"(^|/)(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|[\w-]+\.lock|go\.sum)$"
"""Full of hashes, which look like secrets to whoever measures randomness."""
_GUESSES = ("High Entropy", "Secret Keyword")
"""Kinds that name a suspicion; another kind on the same line knows better."""


def _is_ours(path: str) -> bool:
    return not NOT_OURS & set(Path(path).parts)


_Row = tuple[str, int, str, bool | None, str | None]
"""Path, line, kind, verified, commit."""


def _secrets(rows: Sequence[_Row]) -> list[Secret]:
    """Each place once. No part of a fingerprint is made from the secret."""
    ordinals = Ordinals()
    return [
        Secret(kind=kind, path=path, line=line, verified=verified, commit=commit, fingerprint=ordinals.fingerprint(kind, path))
        for path, line, kind, verified, commit in sorted(
            {
                (path, line_number(line), shown(kind), verified, shown(commit) if commit else None)
                for path, line, kind, verified, commit in rows
            },
            key=lambda row: (row[0], row[1], row[2], row[4] or ""),
        )
        if _is_ours(path)
    ]


# -- TruffleHog --------------------------------------------------------------------------------------------------------


class _HogPlace(msgspec.Struct):
    file: str = ""
    line: int = 0
    commit: str | None = None


class _HogSource(msgspec.Struct, rename="pascal"):
    data: dict[str, _HogPlace]


class _Hog(msgspec.Struct, rename="pascal"):
    """One line; `Raw` and its kin have no field here, so they are never kept."""

    source_metadata: _HogSource
    detector_name: str
    verified: bool = False


def read_trufflehog(lines: str, checkout: Path) -> list[Secret]:
    rows: list[_Row] = []
    for line in lines.splitlines():
        one = parse_report(line, _Hog) if line.startswith("{") else None
        if one is None:
            continue  # it prints its own log there, too
        for place in one.source_metadata.data.values():
            # It was told to try none, so False means only that nobody did.
            verified = True if one.verified else None
            rows.append((path_in(checkout, place.file), place.line, one.detector_name, verified, place.commit))
    return _secrets(rows)


# -- kingfisher --------------------------------------------------------------------------------------------------------


class _Rule(msgspec.Struct):
    name: str = ""


class _Found(msgspec.Struct):
    path: str = ""
    line: int = 0
    git_metadata: dict[str, Any] | None = None


class _Pair(msgspec.Struct):
    rule: _Rule
    finding: _Found


class Kingfisher(msgspec.Struct):
    findings: list[_Pair] = []


def read_kingfisher(report: Kingfisher, checkout: Path) -> list[Secret]:
    rows = []
    for pair in report.findings:
        commit = (pair.finding.git_metadata or {}).get("commit")
        commit_id = commit.get("id") if isinstance(commit, dict) else None
        path = path_in(checkout, pair.finding.path)
        rows.append((path, pair.finding.line, pair.rule.name, None, str(commit_id) if commit_id else None))
    return _secrets(rows)


# -- detect-secrets ----------------------------------------------------------------------------------------------------


class _Detected(msgspec.Struct):
    type: str
    line_number: int


class DetectSecrets(msgspec.Struct):
    results: dict[str, list[_Detected]]


def detect_secrets_argv(folder: Path) -> list[str]:
    folders = "|".join(sorted(name.replace(".", r"\.") for name in NOT_OURS))
    # -I: nothing in the scanned folder may stand in for a module of Python.
    return [
        *(sys.executable, "-I", "-m", "detect_secrets", "-C", str(folder), "scan", "--all-files", "--no-verify"),
        *("--exclude-files", _LOCKFILES, "--exclude-files", rf"(^|/)({folders})/", "."),
    ]


def parse_detect_secrets(text: str) -> DetectSecrets | None:
    return parse_report(text, DetectSecrets)


def read_detect_secrets(report: DetectSecrets, folder: Path, checkout: Path) -> list[Secret]:
    kinds: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name, found in report.results.items():
        for one in found:
            kinds[path_in(checkout, str(folder / name)), one.line_number].append(one.type)
    return _secrets([(path, line, _best(names), None, None) for (path, line), names in kinds.items()])


def _best(kinds: list[str]) -> str:
    return min(kinds, key=lambda kind: (any(guess in kind for guess in _GUESSES), "Entropy" in kind, kind))
