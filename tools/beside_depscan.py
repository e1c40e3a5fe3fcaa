"""The matcher beside OWASP dep-scan, over the same made-up advisories: python tools/beside_depscan.py FOLDER/bin

FOLDER is an environment of its own with owasp-depscan in it. Prints a table, ecosystem by ecosystem, and where the two differ.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.extraction.advisories import Matcher, update
from holdfast.extraction.manifests.packages import identify_purl
from holdfast.extraction.model import Component, Inventory
from holdfast.extraction.sbom import write_sbom

FILL = """
import json, sys
from pathlib import Path
from vdb.lib import config, db6
from vdb.lib.osv import OSVSource
from datetime import datetime, timezone
source = OSVSource()
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    source.store(source.convert(json.loads(path.read_text())))
Path(config.VDB_METADATA_FILE).write_text(json.dumps({"created_utc": datetime.now(timezone.utc).isoformat(timespec="seconds")}))
"""
"""Calls of vdb's inside, which promise nothing: seen to work with vulnerability-db 6.7."""

KINDS = {"npm": "npm", "PyPI": "pypi", "Go": "golang", "crates.io": "cargo", "Maven": "maven"}
NAMES = {
    "npm": ("pad-{n}", "pad-{n}"),
    "PyPI": ("py-pad-{n}", "py-pad-{n}"),
    "Go": ("example.org/pad/m{n}", "example.org/pad/m{n}"),
    "crates.io": ("pad_{n}", "pad_{n}"),
    "Maven": ("org.example:pad-{n}", "org.example/pad-{n}"),
}
"""Ecosystem -> the name in advisories, the name in package URLs."""
PRE = {"npm": "-rc.1", "PyPI": "rc1", "Go": "-rc.1", "crates.io": "-rc.1", "Maven": "-rc-1"}
SHAPES: dict[str, list[list[tuple[str, str]]]] = {
    "fixed": [[("introduced", "0"), ("fixed", "2.3.0")]],
    "window": [[("introduced", "1.2.0"), ("fixed", "1.10.0")]],
    "two windows": [[("introduced", "1.0.0"), ("fixed", "1.2.0"), ("introduced", "2.0.0"), ("fixed", "2.3.0")]],
    "two ranges": [[("introduced", "1.0.0"), ("fixed", "1.2.0")], [("introduced", "2.0.0"), ("fixed", "2.3.0")]],
    "last affected": [[("introduced", "1.2.0"), ("last_affected", "1.10.0")]],
    "never fixed": [[("introduced", "1.10.0")]],
    "fixed in a pre-release": [[("introduced", "0"), ("fixed", "2.3.0{pre}")]],
    "versions only": [],
    "withdrawn": [[("introduced", "0"), ("fixed", "2.3.0")]],
}
VERSIONS = ["0.9.0", "1.0.0", "1.2.0{pre}", "1.2.0", "1.9.9", "1.10.0{pre}", "1.10.0", "2.0.0", "2.3.0{pre}", "2.3.0", "10.0.0"]
LISTED = ["1.2.0", "2.0.0"]


class Case(NamedTuple):
    """One package in one version, with one advisory for it: dep-scan tells of a package once, whatever versions are there."""

    shape: str
    affected: bool
    """By the order in which the versions stand above, which needs no parser."""
    component: Component
    record: dict[str, Any]


def cases(ecosystem: str) -> Iterator[Case]:
    advisory_name, purl_name = NAMES[ecosystem]
    for number, (shape, version) in enumerate(product(SHAPES, VERSIONS)):
        text = _plain(version, ecosystem)
        found = identify_purl(f"pkg:{KINDS[ecosystem]}/{purl_name.format(n=number)}@{'v' if ecosystem == 'Go' else ''}{text}")
        assert found is not None
        component = Component(purl=found.purl, name=found.name, version=found.version, ecosystem=found.ecosystem, direct=True)
        yield Case(
            shape,
            _is_affected(shape, version),
            component,
            _record(ecosystem, shape, advisory_name.format(n=number), 10_000 + number),
        )


def _is_affected(shape: str, version: str) -> bool:
    if shape in ("withdrawn", "versions only"):
        return shape == "versions only" and version in LISTED
    here = VERSIONS.index(version)
    for events in SHAPES[shape]:
        inside = False
        for event, text in events:
            place = -1 if text == "0" else VERSIONS.index(text)
            if event == "introduced":
                inside = inside or here >= place
            else:
                inside = inside and (here < place if event == "fixed" else here <= place)
        if inside:
            return True
    return False


def _record(ecosystem: str, shape: str, name: str, number: int) -> dict[str, Any]:
    kind = "SEMVER" if ecosystem in ("npm", "Go", "crates.io") else "ECOSYSTEM"
    ranges = [
        {"type": kind, "events": [{event: _plain(version, ecosystem)} for event, version in events]} for events in SHAPES[shape]
    ]
    versions = LISTED if shape == "versions only" else []
    record = {
        "schema_version": "1.6.0",
        "id": f"CVE-2024-{number}",
        "modified": "2026-01-01T00:00:00Z",
        "published": "2024-01-01T00:00:00Z",
        "summary": shape,
        "details": shape,
        "affected": [{"package": {"ecosystem": ecosystem, "name": name}, "ranges": ranges, "versions": versions}],
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}],
    }
    return {**record, "withdrawn": "2024-06-01T00:00:00Z"} if shape == "withdrawn" else record


def _plain(version: str, ecosystem: str) -> str:
    return version.format(pre=PRE[ecosystem]) if "{" in version else version


def ours(folder: Path, inventory: Inventory) -> set[tuple[str, str]]:
    database = folder / "advisories.db"
    update(database, [str(folder / "osv")])
    with Matcher(database) as matcher:
        return {(one.id, one.purl) for one in matcher.match(inventory.components).vulnerabilities}


def theirs(folder: Path, inventory: Inventory, programs: Path) -> set[tuple[str, str]]:
    environment = {**os.environ, "VDB_HOME": str(folder / "vdb"), "NVD_START_YEAR": "1999", "HOME": str(folder)}
    (folder / "vdb").mkdir(exist_ok=True)
    subprocess.run([programs / "python", "-c", FILL, folder / "osv"], check=True, env=environment)
    bom = folder / "sbom.cdx.json"
    bom.write_bytes(write_sbom(inventory, name="beside"))
    arguments: list[str | Path] = [programs / "depscan", "--no-banner", "-q", "--bom", bom, "-o", folder / "reports"]
    subprocess.run(arguments, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
    report = json.loads((folder / "reports" / "sbom.vdr.json").read_text())
    found = set()
    for one in report.get("vulnerabilities", []):
        refs = [affected["ref"] for affected in one.get("affects", [])] or [one["bom-ref"].partition("/")[2]]
        found |= {(one["id"], package.purl) for ref in refs if (package := identify_purl(ref)) is not None}
    return found


def main(programs: Path) -> None:
    print("| ecosystem | packages | both | neither | only ours | only dep-scan | ours right | dep-scan right |")
    print("|---|---|---|---|---|---|---|---|")
    notes = []
    with tempfile.TemporaryDirectory(prefix="holdfast-beside-") as temporary:
        for ecosystem in NAMES:
            folder = Path(temporary, KINDS[ecosystem])
            (folder / "osv").mkdir(parents=True)
            every = list(cases(ecosystem))
            for one in every:
                (folder / "osv" / f"{one.record['id']}.json").write_text(json.dumps(one.record))
            inventory = Inventory(components=[one.component for one in every])
            mine, other = ours(folder, inventory), theirs(folder, inventory, programs)
            truth = {(one.record["id"], one.component.purl) for one in every if one.affected}
            numbers = [len(every), len(mine & other), len(every) - len(mine | other), len(mine - other), len(other - mine)]
            numbers += [len(every) - len(mine ^ truth), len(every) - len(other ^ truth)]
            print(f"| {ecosystem} | {' | '.join(map(str, numbers))} |")
            shapes = {one.component.purl: one.shape for one in every}
            for who, found in (("ours", mine - other), ("dep-scan", other - mine)):
                for shape in SHAPES:
                    versions = [purl.rpartition("@")[2] for _, purl in sorted(found) if shapes.get(purl) == shape]
                    notes += [f"{ecosystem}: only {who}: {shape}: {', '.join(versions)}"] if versions else []
    print("\n" + "\n".join(notes))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
