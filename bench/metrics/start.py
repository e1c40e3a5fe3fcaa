"""Cold start: from the exec of `holdfast worker` until it has claimed its first job."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, STDOUT
from importlib.util import find_spec

from bench.noise import alternate
from bench.places import Place, filled
from bench.plan import Line, Plan
from bench.processes import ROOT

JOBS = 1
_BARE = {
    "postgres": """
import asyncio, asyncpg, os
async def main():
    connection = await asyncpg.connect(os.environ["HOLDFAST_DATABASE_URL"])
    await connection.execute("UPDATE holdfast.jobs SET started_at = clock_timestamp()")
asyncio.run(main())
""",
    "sqlite": """
import os, sqlite3, time
connection = sqlite3.connect(os.environ["HOLDFAST_DATABASE_URL"].removeprefix("sqlite:///"), isolation_level=None)
connection.execute("UPDATE holdfast_jobs SET started_at = ?", (time.time(),))
""",
}


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    if find_spec("holdfast.cli") is None:
        return []
    lines = []
    for place in places:
        full = await filled(place, JOBS)

        async def ours() -> float:
            worker = ["-m", "holdfast", "--app", "bench.command:hf", "worker", "--exit-when-idle", "0"]
            return await _until_first_claim(place, full, worker)  # noqa: B023

        async def bare() -> float:
            return await _until_first_claim(place, full, ["-c", _BARE[place.name]])  # noqa: B023

        found, calibrations = await alternate(plan.runs, ours, bare)
        lines.append(
            Line(
                metric="start", store=place.name, title="exec of `holdfast worker` to first claim", unit="ms", ours=found[0],
                floors={"python, driver, UPDATE": found[1]}, calibrations=calibrations,
            )
        )  # fmt: skip
    return lines


async def _until_first_claim(place: Place, full: str, command: list[str]) -> float:
    url = await place.copy_of(full)
    environment = {**os.environ, "HOLDFAST_DATABASE_URL": url}
    started = time.time()
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, cwd=ROOT, env=environment, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"`python {command[0]} {command[1]}` failed: {said.decode()}")
    return (await place.first_start(url) - started) * 1000
