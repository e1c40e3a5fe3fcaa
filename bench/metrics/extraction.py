"""What an extraction costs beside its tools: the sync of its dependencies, and everything that is not a tool."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from importlib import resources
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from bench.noise import Sample, alternate
from bench.places import Place, path_of
from bench.plan import Line, Plan
from holdfast import Holdfast
from holdfast.extraction.advisories import update
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import Options, Project
from holdfast.extraction.kinds import KINDS
from holdfast.extraction.model import Component, Inventory
from holdfast.extraction.sync import save_dependencies

DEPENDENCIES = 5_000
PLATFORM_STEPS = {"deps_sync", "complete"}
"""Steps without a tool: their time is ours."""
COLUMNS = ["key", "fingerprint", "purl", "name", "version", "ecosystem", "scope", "direct", "manifest", "depends_on"]
TYPES = ["text"] * 7 + ["boolean", "text", "text"]
SOURCE = Project(id="", source="https://example.org/acme/shop")


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        bare = _copied if place.name == "postgres" else _inserted
        samples = [_synced(place, again=False), bare(place, again=False), _synced(place, again=True), bare(place, again=True)]
        (first, bare_first, again, bare_again), calibrations = await alternate(plan.runs, *samples)
        name = "COPY + merge" if place.name == "postgres" else "executemany + merge"
        lines += [
            _line(place, f"sync {DEPENDENCIES:,} new dependencies", "rows/s", first, {name: bare_first}, calibrations),
            _line(place, f"sync {DEPENDENCIES:,} known dependencies", "rows/s", again, {name: bare_again}, calibrations),
        ]
        (beside,), calibrations = await alternate(plan.runs, _beside_tools(place))
        (total,), _ = await alternate(1, _beside_tools(place, total=True))
        title = f"an extraction beside its tools ({100 * beside[-1] / total[-1]:.1f} % of {total[-1] / 1000:.1f} s)"
        lines.append(_line(place, title, "ms", beside, {}, calibrations))
    return lines


def _line(
    place: Place, title: str, unit: str, ours: list[float], floors: dict[str, list[float]], calibrations: list[float]
) -> Line:
    return Line(
        metric="extraction", store=place.name, title=title, unit=unit, ours=ours, floors=floors, calibrations=calibrations
    )


def _components() -> list[Component]:
    purls = [f"pkg:npm/package-{number}@1.{number}.0" for number in range(DEPENDENCIES)]
    return [
        Component(
            purl=purl,
            name=f"package-{number}",
            version=f"1.{number}.0",
            ecosystem="npm",
            direct=number % 10 == 0,
            manifest="package-lock.json",
            depends_on=purls[number + 1 : number + 4],
        )
        for number, purl in enumerate(purls)
    ]


async def _begun(place: Place) -> tuple[Holdfast, str, str]:
    """An application, and a repository whose extraction has begun under this run id."""
    hf = Holdfast(await place.fresh())
    extraction = Extraction(hf, Options())
    await hf.migrate()
    job = await extraction.connect("acme", "shop", SOURCE)
    repository = await extraction.get("acme", "shop")
    async with hf.transaction() as tx:
        begin = hf.extensions["extraction"].statement(tx.store_kind, "repository_begin")
        await tx.fetch(begin, repository.id, job.id, "run")
    return hf, repository.id, "run"


def _synced(place: Place, *, again: bool) -> Sample:
    async def sample() -> float:
        hf, *repository = await _begun(place)
        inventory = Inventory(components=_components())
        if again:
            await save_dependencies(hf, *repository, inventory)
        started = time.perf_counter()
        await save_dependencies(hf, *repository, inventory)
        taken = time.perf_counter() - started
        await hf.aclose()
        return DEPENDENCIES / taken

    return sample


def _rows() -> list[tuple[Any, ...]]:
    stored = KINDS["dependencies"].stored(_components())
    plain = [{**row, "depends_on": msgspec.json.encode(row["depends_on"]).decode()} for row in stored]
    return [tuple(row[name] for name in COLUMNS) for row in plain]


def _copied(place: Place, *, again: bool) -> Sample:
    """The same rows by COPY into a temporary table, then one upsert and one delete."""
    names = ", ".join(COLUMNS)

    async def merge(connection: Any) -> None:
        async with connection.transaction():
            kinds = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, TYPES, strict=True))
            await connection.execute(f"CREATE TEMP TABLE news ({kinds}) ON COMMIT DROP")
            await connection.copy_records_to_table("news", records=_rows(), columns=COLUMNS)
            await connection.execute(
                f"INSERT INTO floor ({names}) SELECT * FROM news ON CONFLICT (key) DO UPDATE SET scope = excluded.scope, "
                "direct = excluded.direct, depends_on = excluded.depends_on"
            )
            await connection.execute("DELETE FROM floor WHERE key NOT IN (SELECT key FROM news)")

    async def sample() -> float:
        connection: Any = await asyncpg.connect(await place.fresh())
        kinds = ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, TYPES, strict=True))
        await connection.execute(f"CREATE TABLE floor ({kinds}, PRIMARY KEY (key))")
        if again:
            await merge(connection)
        started = time.perf_counter()
        await merge(connection)
        taken = time.perf_counter() - started
        await connection.close()
        return DEPENDENCIES / taken

    return sample


def _inserted(place: Place, *, again: bool) -> Sample:
    names = ", ".join(COLUMNS)

    def merge(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"CREATE TEMP TABLE news ({names})")
        connection.executemany(f"INSERT INTO news VALUES ({', '.join('?' * len(COLUMNS))})", _rows())
        connection.execute(
            f"INSERT INTO floor ({names}) SELECT * FROM news WHERE true ON CONFLICT (key) DO UPDATE "
            "SET scope = excluded.scope, direct = excluded.direct, depends_on = excluded.depends_on"
        )
        connection.execute("DELETE FROM floor WHERE key NOT IN (SELECT key FROM news)")
        connection.execute("DROP TABLE news")
        connection.execute("COMMIT")

    async def sample() -> float:
        connection = sqlite3.connect(path_of(await place.fresh()), isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"CREATE TABLE floor ({names}, PRIMARY KEY (key)) WITHOUT ROWID")
        if again:
            merge(connection)
        started = time.perf_counter()
        merge(connection)
        taken = time.perf_counter() - started
        connection.close()
        return DEPENDENCIES / taken

    return sample


def _beside_tools(place: Place, *, total: bool = False) -> Sample:
    """From the call to the end, less what the steps with tools took; Semgrep and cdxgen take part where they are installed."""

    async def sample() -> float:
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            with resources.as_file(resources.files("holdfast.extraction.sample")) as bundled:
                shutil.copytree(bundled / "shop", Path(folder, "shop"))
                update(Path(folder, "advisories.db"), [str(bundled / "advisories")])
            hf = Holdfast(await place.fresh())
            options = Options(trusted=True, advisories=Path(folder, "advisories.db"), storage=str(Path(folder, "reports")))
            extraction = Extraction(hf, options)
            await hf.migrate()
            started = time.perf_counter()
            job = await extraction.connect("acme", "shop", Project(id="", source=str(Path(folder, "shop"))))
            await hf.run_worker(exit_when_idle=0.0)
            taken = time.perf_counter() - started
            assert (await hf.get(job.id)).status == "completed"
            outcomes = (await extraction.runs("acme", "shop"))[0].outcomes
            await hf.aclose()
        tools = sum(one["seconds"] for name, one in outcomes.items() if name not in PLATFORM_STEPS)
        return 1000 * (taken if total else taken - tools)

    return sample
