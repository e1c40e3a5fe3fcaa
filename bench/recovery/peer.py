"""`python -m bench.recovery.peer QUEUE setup|work URL`, in the queue's own environment: its defaults, and one job."""

from __future__ import annotations

import asyncio
import sys
from importlib.metadata import version

from bench.recovery.mark import hang


async def pgqueuer(part: str, url: str) -> None:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.models import Job
    from pgqueuer.queries import Queries

    driver = AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=2, max_size=6))
    if part == "setup":
        queries = Queries(driver)
        await queries.install()
        await queries.enqueue("job", b"")
        return
    queue = PgQueuer(driver)

    @queue.entrypoint("job")
    async def run(job: Job) -> None:
        await hang()

    await queue.run()


async def procrastinate(part: str, url: str) -> None:
    from procrastinate import App, PsycopgConnector

    app = App(connector=PsycopgConnector(conninfo=url))
    job = app.task(name="job")(hang)
    async with app.open_async():
        if part == "setup":
            await app.schema_manager.apply_schema_async()
            await job.defer_async()
        else:
            await app.run_worker_async()


if __name__ == "__main__":
    name, part, url = sys.argv[1:]
    if part == "setup":
        print(version(name))
    asyncio.run({"pgqueuer": pgqueuer, "procrastinate": procrastinate}[name](part, url))
