"""What a worker costs while there is nothing to do: statements and CPU. Both stores at the same time, idle as they are."""

from __future__ import annotations

import asyncio
import re

from bench.places import Place, PostgresPlace, cpu_seconds, name_of
from bench.plan import Line, Plan
from bench.processes import Child

SETTLE_SECONDS = 2.0
WRITES = "BEGIN IMMEDIATE"


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    found = await asyncio.gather(*(_one_place(place, plan.idle_seconds) for place in places))
    return [line for lines in found for line in lines]


async def _one_place(place: Place, seconds: float) -> list[Line]:
    url = await place.fresh()
    if isinstance(place, PostgresPlace):
        await place.admin.execute(f"ALTER DATABASE {name_of(url)} SET log_statement = 'all'")
    worker = await Child.start("work", url)
    await worker.ready()
    worker.say("go")
    await asyncio.sleep(SETTLE_SECONDS)
    worker.say("mark")
    cpu, logged = cpu_seconds(worker.pid), _logged(place, url)
    await asyncio.sleep(seconds)
    worker.say("mark")
    cpu, logged = cpu_seconds(worker.pid) - cpu, _logged(place, url) - logged
    worker.end_input()
    before, after = (await worker.answer())["marks"]
    rates = {"statements of an idle worker": logged / seconds}
    if not isinstance(place, PostgresPlace):
        rates["statements of an idle worker"] = (sum(after.values()) - sum(before.values())) / seconds
        rates["write transactions of an idle worker"] = (after.get(WRITES, 0) - before.get(WRITES, 0)) / seconds
    lines = [Line(metric="idle", store=place.name, title=title, unit="per s", ours=[rate]) for title, rate in rates.items()]
    title, percent = "CPU of an idle worker", cpu / seconds * 100
    return [*lines, Line(metric="idle", store=place.name, title=title, unit="% of a core", ours=[percent])]


def _logged(place: Place, url: str) -> int:
    """The server's log has a line for each statement; the counters of pg_stat_database come seconds late."""
    if not isinstance(place, PostgresPlace):
        return 0
    return len(re.findall(rf"^{name_of(url)}/holdfast[^=]*=LOG:  (?:execute|statement)", place.server.log, re.MULTILINE))
