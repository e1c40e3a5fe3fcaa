"""Does a claim cost the same whatever else is in the table? Claim and finish on full tables, beside an empty one."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import msgspec

from bench.app import make_app
from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan
from holdfast import Holdfast
from holdfast.claim import Rotation
from holdfast.store.protocol import Completion

BATCH = 100
CYCLE_JOBS = 10_000
TENANTS = 10_000

_FILL = {
    "postgres": """
        INSERT INTO holdfast.jobs (id, run_id, queue, task, state, tenant, priority, run_at, max_attempts, lease_seconds,
                                   timeout_seconds, created_at, updated_at, args)
        SELECT gen_random_uuid(), gen_random_uuid(), 'default', 'noop', '{state}', {tenant}, {priority},
               now() - interval '1 hour' + i * interval '1 millisecond', 3, 300, 14400, now(), now(), '{{"number": 1}}'
          FROM generate_series(1, {rows}) AS numbers (i)""",
    "sqlite": """
        WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {rows})
        INSERT INTO holdfast_jobs (id, run_id, queue, task, state, tenant, priority, run_at, max_attempts, lease_seconds,
                                   timeout_seconds, created_at, updated_at, args)
        SELECT lower(hex(randomblob(16))), lower(hex(randomblob(16))), 'default', 'noop', '{state}', {tenant}, {priority},
               strftime('%s', 'now') - 3600 + i * 0.001, 3, 300, 14400, strftime('%s', 'now'), strftime('%s', 'now'),
               '{{"number": 1}}'
          FROM numbers""",
}


class Fill(msgspec.Struct):
    rows: int
    state: str = "queued"
    tenant: str = "NULL"
    priority: int = 0


def scenes(plan: Plan) -> dict[str, list[Fill]]:
    """The first one is what the others are compared with."""
    enough = Fill(CYCLE_JOBS * plan.runs)
    rows = plan.flat_rows
    return {
        "nothing else": [enough],
        f"{rows:,} queued": [Fill(rows)],
        f"{rows:,} finished": [Fill(rows, state="completed"), enough],
        f"{rows // 2:,} of a tenant at its limit, more urgent": [Fill(rows // 2, tenant="'full'", priority=10), enough],
        f"{rows:,} queued of {TENANTS:,} tenants": [Fill(rows, tenant=f"'t' || (i % {TENANTS})")],
    }


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for place in places:
        apps = {}
        for title, fills in scenes(plan).items():
            url = await place.fresh()
            await fill(url, fills)
            await place.settle(url)
            apps[title] = make_app(url)
        samples = [_cycles(app) for app in apps.values()]
        async with AsyncExitStack() as open_elsewhere:
            if place.name == "postgres":
                title = f"{plan.flat_rows // 4:,} claimed since a transaction was opened elsewhere"
                apps[title] = await _claimed_since(place, plan, open_elsewhere)
                samples.append(_cycles(apps[title]))
            found, calibrations = await alternate(plan.runs, *samples)
        for title, ours in zip(apps, found, strict=True):
            floors = {"nothing else in the table": found[0]}
            line = Line(
                metric="flat", store=place.name, title=f"claim + finish, {title}", unit="jobs/s", ours=ours, floors=floors
            )
            lines.append(msgspec.structs.replace(line, calibrations=calibrations))
        for app in apps.values():
            await app.aclose()
    return lines


async def _claimed_since(place: Place, plan: Plan, open_elsewhere: AsyncExitStack) -> Holdfast:
    """Until that transaction ends, no entry of a claimed job can leave the index. SQLite knows nothing of the kind."""
    url = await place.fresh()
    await fill(url, [Fill(plan.flat_rows // 4 + CYCLE_JOBS * plan.runs)])
    await place.settle(url)
    app = make_app(url)
    tx = await open_elsewhere.enter_async_context(app.transaction())
    await tx.execute("SELECT pg_current_xact_id()")
    claim_and_finish = _cycles(app)
    for _ in range(plan.flat_rows // 4 // CYCLE_JOBS):
        await claim_and_finish()
    return app


async def fill(url: str, fills: list[Fill]) -> None:
    app = make_app(url)
    await app.tenants.set("full", limit=0)
    async with app.transaction() as tx:
        for fill in fills:
            await tx.execute(_FILL[app.store.name].format(**msgspec.structs.asdict(fill)))
    await app.aclose()


def _cycles(app: Holdfast) -> Sample:
    rotation = Rotation(["default"])

    async def sample() -> float:
        done, started = 0, time.perf_counter()
        while done < CYCLE_JOBS:
            hops, hints = rotation.next_question()
            claim = await app.store.job_claim(
                worker="bench", machine=None, queues=["default"], tasks=["noop"], limit=BATCH,
                cursors=rotation.cursors, hops=hops, hints=hints,
            )  # fmt: skip
            if rotation.answered(claim, BATCH, hops) is None and not claim.jobs:
                raise RuntimeError("There was nothing left to claim: this measured nothing.")
            if claim.jobs:
                await app.store.job_complete_if_leased([Completion(job.id, job.run_id, None) for job in claim.jobs])
            for job in claim.jobs:
                rotation.freed(job.queue, job.tenant)
            done += len(claim.jobs)
        return done / (time.perf_counter() - started)

    return sample
