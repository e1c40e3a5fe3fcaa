"""Does matching cost by packages or by advisories? The same inventory against a small and a large advisory database."""

from __future__ import annotations

import sqlite3
import time
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan
from holdfast.extraction.advisories import Matcher, update
from holdfast.extraction.advisories.versions import parse
from holdfast.extraction.model import Component

PACKAGES = 5_000
ADVISORIES_PER_PACKAGE = 2
ECOSYSTEMS = ["npm", "PyPI", "Go", "crates.io", "Maven"]


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    """No store takes part, so the places are not asked."""
    few, many = plan.advisories // 10, plan.advisories
    with TemporaryDirectory(prefix="holdfast-bench-") as folder:
        small, large = Path(folder, "small.db"), Path(folder, "large.db")
        _fill(small, few)
        brought = _fill(large, many)
        samples = [
            _matching(large, _inventory(PACKAGES, many)),
            _matching(small, _inventory(PACKAGES, few)),
            _matching(large, _inventory(PACKAGES // 10, many)),
            _bare(large, _inventory(PACKAGES, many)),
        ]
        found, calibrations = await alternate(plan.runs, *samples)
    in_large, in_small, tenth, bare = found
    return [
        _line(f"match {PACKAGES:,} packages, {many:,} advisories", "ms", in_large, calibrations,
              {f"{few:,} advisories": in_small, "bare lookups": bare}),
        _line(f"match {PACKAGES // 10:,} packages, {many:,} advisories", "ms", tenth, calibrations,
              {f"{PACKAGES:,} packages": in_large}),
        _line("bring in from a zip", "records/s", [many / brought], calibrations, {}),
    ]  # fmt: skip


def _line(title: str, unit: str, ours: list[float], calibrations: list[float], floors: dict[str, list[float]]) -> Line:
    return Line(
        metric="advisories", store="no store", title=title, unit=unit, ours=ours, floors=floors, calibrations=calibrations
    )


def _fill(path: Path, advisories: int) -> float:
    """Seconds that the update took, its own work alone."""
    source = path.with_suffix(".zip")
    with zipfile.ZipFile(source, "w") as archive:
        for number in range(advisories):
            archive.writestr(f"A-{number}.json", msgspec.json.encode(_record(number)))
    started = time.perf_counter()
    update(path, [str(source)])
    return time.perf_counter() - started


def _record(number: int) -> dict[str, object]:
    package = number // ADVISORIES_PER_PACKAGE
    fixed = f"{1 + number % ADVISORIES_PER_PACKAGE}.{number % 50}.0"
    events = [{"introduced": "0"}, {"fixed": fixed}]
    return {
        "id": f"A-{number}",
        "modified": "2026-01-01T00:00:00Z",
        "aliases": [f"CVE-2026-{100_000 + number}"],
        "summary": "A made-up advisory of about the length that real ones have",
        "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"}],
        "affected": [
            {
                "package": {"ecosystem": _ecosystem(package), "name": f"group:package-{package}"},
                "ranges": [{"type": "ECOSYSTEM", "events": events}],
                "versions": [f"0.{minor}.0" for minor in range(10)],
            }
        ],
    }


def _ecosystem(package: int) -> str:
    return ECOSYSTEMS[package % len(ECOSYSTEMS)]


def _inventory(packages: int, advisories: int) -> list[Component]:
    """Spread over all packages of the database; every one has advisories, and about half of these hold."""
    step = advisories // ADVISORIES_PER_PACKAGE // packages
    numbers = range(0, packages * step, step)
    return [
        Component(
            purl=f"pkg:x/{n}", name=f"group:package-{n}", version=f"1.{n // step % 50}.{n // step % 7}", ecosystem=_ecosystem(n)
        )
        for n in numbers
    ]


def _matching(path: Path, inventory: list[Component]) -> Sample:
    async def sample() -> float:
        parse.cache_clear()
        started = time.perf_counter()
        with Matcher(path) as matcher:
            found = matcher.match(inventory)
        taken = (time.perf_counter() - started) * 1000
        if not len(inventory) / 2 < len(found.vulnerabilities) < len(inventory) * ADVISORIES_PER_PACKAGE:
            raise RuntimeError(f"{len(found.vulnerabilities)} findings for {len(inventory)} packages: this measured nothing.")
        return taken

    return sample


def _bare(path: Path, inventory: list[Component]) -> Sample:
    """The same rows asked for in SQL, and nothing done with them."""

    async def sample() -> float:
        started = time.perf_counter()
        connection = sqlite3.connect(path)
        for component in inventory:
            wanted = (component.ecosystem, component.name)
            connection.execute("SELECT affected FROM packages WHERE ecosystem = ? AND name = ?", wanted).fetchall()
        connection.close()
        return (time.perf_counter() - started) * 1000

    return sample
