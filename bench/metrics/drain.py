"""Drain a backlog of no-op jobs with one and two worker processes, and what each job costs meanwhile."""

from __future__ import annotations

import msgspec

from bench.floor import BATCH
from bench.noise import Sample, alternate
from bench.places import Place, PostgresPlace, filled
from bench.plan import Line, Plan
from bench.processes import run_together

DEFAULT, MANY = 10, 1000
"""Concurrency: what run_worker takes if not told otherwise, and a lot."""


class Costs:
    """What the drains of one configuration cost per job, beside their speed."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}

    def add(self, what: str, unit: str, value: float, *, of_floor: bool = False) -> None:
        self._found.setdefault((what, unit), ([], []))[of_floor].append(value)

    def lines(self, store: str) -> list[Line]:
        lines = []
        for (what, unit), (ours, bare) in self._found.items():
            floors = {"bare": bare} if bare else {}
            title = f"  {what}, {self._title}"
            lines.append(Line(metric="drain", store=store, title=title, unit=unit, ours=ours, floors=floors))
        return lines


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        full = await filled(place, plan.backlog)
        floor_full = await _filled_floor(place, plan.backlog)
        for processes in (1, 2):
            title = f"{processes} process{'es' if processes > 1 else ''}"
            costs = {many: Costs(f"{title} x {many}") for many in (DEFAULT, MANY)}
            samples = [_drain(place, full, processes, many, plan.backlog, costs[many]) for many in (DEFAULT, MANY)]
            bare = _drain_floor(place, floor_full, processes, plan.backlog, costs[DEFAULT])
            found, calibrations = await alternate(plan.runs, *samples, bare)
            for many, ours in zip((DEFAULT, MANY), found, strict=False):
                floors = {f"batches of {BATCH:,}": found[-1]}
                name = f"drain, {title} x {many}"
                line = Line(metric="drain", store=place.name, title=name, unit="jobs/s", ours=ours, floors=floors)
                lines.append(msgspec.structs.replace(line, calibrations=calibrations))
                lines += costs[many].lines(place.name) if processes == 1 else []
    return lines


async def _filled_floor(place: Place, rows: int) -> str:
    url = await place.fresh()
    floor = place.floor(url)
    await floor.open()
    await floor.create()
    for _ in range(rows // BATCH):
        await floor.insert_many(BATCH, floor.batch_ways[0])
    await floor.close()
    await place.settle(url)
    return url


def _drain(place: Place, full: str, processes: int, concurrency: int, jobs: int, costs: Costs) -> Sample:
    async def sample() -> float:
        url = await place.copy_of(full)
        server = await ServerCosts.before(place, url)
        seconds, answers = await run_together(processes, "drain", url, str(concurrency))
        left, done = await place.unfinished(url), sum(answer["jobs"] for answer in answers)
        if left or done != jobs:
            raise RuntimeError(f"{done} jobs ran and {left} are unfinished, of {jobs}: this drain measured nothing.")
        costs.add("CPU of the worker", "µs/job", sum(answer["cpu"] for answer in answers) / jobs * 1e6)
        await server.after(jobs, costs)
        return jobs / seconds

    return sample


def _drain_floor(place: Place, full: str, processes: int, rows: int, costs: Costs) -> Sample:
    async def sample() -> float:
        url = await place.copy_of(full)
        server = await ServerCosts.before(place, url)
        seconds, answers = await run_together(processes, "drain-floor", url)
        if sum(answer["jobs"] for answer in answers) != rows:
            raise RuntimeError("The floor did not drain all of its rows.")
        costs.add("CPU of the worker", "µs/job", sum(answer["cpu"] for answer in answers) / rows * 1e6, of_floor=True)
        await server.after(rows, costs, of_floor=True)
        return rows / seconds

    return sample


class ServerCosts:
    """CPU, row versions and transactions of a PostgreSQL server; nothing for SQLite, which works inside the worker."""

    def __init__(self, place: Place, url: str) -> None:
        self._place = place
        self._url = url
        self._cpu = 0.0
        self._counters: dict[str, int] = {}

    @classmethod
    async def before(cls, place: Place, url: str) -> ServerCosts:
        costs = cls(place, url)
        if isinstance(place, PostgresPlace):
            costs._counters = await place.counters(url)
            costs._cpu = place.cpu_seconds()
        return costs

    async def after(self, jobs: int, costs: Costs, *, of_floor: bool = False) -> None:
        if not isinstance(self._place, PostgresPlace):
            return
        costs.add("CPU of the server", "µs/job", (self._place.cpu_seconds() - self._cpu) / jobs * 1e6, of_floor=of_floor)
        now = await self._place.counters(self._url)
        changed = {name: (value - self._counters[name]) / jobs for name, value in now.items()}
        costs.add("row versions", "per job", changed["inserted"] + changed["updated"] + changed["deleted"], of_floor=of_floor)
        costs.add("of these HOT", "per job", changed["hot"], of_floor=of_floor)
        costs.add("statements", "per job", changed["transactions"], of_floor=of_floor)
