"""Advisory records and databases for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.extraction.advisories import Matcher, Matches, update
from holdfast.extraction.model import Component

SAMPLES = Path(__file__).resolve().parents[1] / "fixtures" / "extraction"
OSV = SAMPLES / "osv"
EPSS = SAMPLES / "feeds" / "epss_scores-sample.csv.gz"
KEV = SAMPLES / "feeds" / "kev-sample.json"


def osv(record_id: str, package: str = "npm/left", *events: dict[str, str], **more: Any) -> dict[str, Any]:
    """`package` is ecosystem/name; without events all versions are affected."""
    ecosystem, _, name = package.partition("/")
    ranges = [{"type": "ECOSYSTEM", "events": list(events) or [{"introduced": "0"}]}]
    affected = [{"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges}]
    return {"id": record_id, "modified": "2026-01-01T00:00:00Z", "affected": affected, **more}


def database(folder: Path, *records: object, feeds: list[Path] | None = None) -> Path:
    file = folder / "records.json"
    file.write_text(json.dumps(records), encoding="utf-8")
    path = folder / "advisories.db"
    update(path, [str(file), *map(str, feeds or [])])
    return path


def component(package: str, version: str, **more: Any) -> Component:
    ecosystem, _, name = package.partition("/")
    return Component(purl=f"pkg:{package.lower()}@{version}", name=name, version=version, ecosystem=ecosystem, **more)


def match(path: Path, *components: Component) -> Matches:
    with Matcher(path) as matcher:
        return matcher.match(components)


def ids(matches: Matches) -> list[str]:
    return [found.id for found in matches.vulnerabilities]
