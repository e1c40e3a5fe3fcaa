"""Our own extraction over our own repository: `make scan`. What it finds must be on the list of what is known and harmless.

The list is `tools/scan-allowed.toml`: each entry names files, what is found in them, how often at most, and why that is fine.
An entry that nothing matches any more is a fault, too: it would hide the next finding in its place.
"""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "tools" / "scan-allowed.toml"
NEEDED = ("cloning", "sbom", "trufflehog")
"""Steps without which silence means nothing. Vulnerabilities are scanned where an advisory database is there."""


BAD = ("failed", "unavailable")
LISTED = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]


class Found(NamedTuple):
    path: str
    kind: str


class Entry(NamedTuple):
    path: str
    kind: str
    most: int
    why: str

    def covers(self, one: Found) -> bool:
        return fnmatch.fnmatchcase(one.path, self.path) and fnmatch.fnmatchcase(one.kind, self.kind)


def entries(text: str) -> list[Entry]:
    """ValueError where an entry says too little: one without a reason could not be judged later."""
    made = []
    for entry in tomllib.loads(text)["allowed"]:
        if set(entry) - set(Entry._fields) or not all(entry.get(name) for name in ("path", "kind", "why")):
            raise ValueError(f"an entry has path, kind, why and perhaps most, not {entry}")
        made.append(Entry(entry["path"], entry["kind"], entry.get("most", 1_000_000), entry["why"]))
    return made


def findings(results: dict[str, Any]) -> list[Found]:
    """Secrets by their file, findings by their rule, vulnerabilities by the package that has them."""
    found = [Found(one["path"], one["kind"]) for one in results["secrets"] or ()]
    found += [Found(one["path"], one["rule"]) for one in results["findings"] or ()]
    for one in results["vulnerabilities"] or ():
        places = {needed["manifest"] for needed in results["dependencies"] if needed["purl"] == one["purl"]}
        found += [Found(path, f"{one['purl']} {one['id']}") for path in sorted(places)]
    return found


def wrongs(found: list[Found], allowed: list[Entry], steps: dict[str, Any]) -> list[str]:
    """One line each; none: all is well."""
    lines = [f"the step {name} did not run: {steps[name]['message']}" for name in NEEDED if steps[name]["status"] in BAD]
    counts: Counter[Entry] = Counter()
    for one in found:
        entry = next((entry for entry in allowed if entry.covers(one)), None)
        if entry is None:
            lines.append(f"{one.path}: {one.kind}")
        else:
            counts[entry] += 1
    lines += [f"{e.path}: {e.kind}: {counts[e]} found, {e.most} are known" for e in allowed if counts[e] > e.most]
    lines += [f"{e.path}: {e.kind}: nothing of it is found any more; remove the entry" for e in allowed if not counts[e]]
    return lines


def scanned(root: Path) -> dict[str, Any]:
    """What `holdfast extract` finds in a folder."""
    command = [sys.executable, "-m", "holdfast", "extract", str(root), "--json"]
    results: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return results


def our_files() -> list[str]:
    """Not what tools keep beside them."""
    return subprocess.run(LISTED, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\0")[:-1]


def main() -> int:
    results, files = scanned(ROOT), set(our_files())
    found = [one for one in findings(results) if one.path in files]
    lines = wrongs(found, entries(ALLOWED.read_text(encoding="utf-8")), results["steps"])
    if results["vulnerabilities"] is None:
        print("Dependencies were not judged: `holdfast advisories update SOURCE` makes the database for it.")
    print("\n".join(lines) if lines else f"{len(found)} findings, all of them known and harmless")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
