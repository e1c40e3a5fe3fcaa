"""Workers: who is there, how busy, and who has fallen silent."""

from __future__ import annotations

from typing import Any

from holdfast.pages import Nav, Pages
from holdfast.store.protocol import WorkerRow
from holdfast.web.dashboard.frame import PageRequest
from holdfast.why import ALIVE_SECONDS

SHOWN_MAX = 200

pages = Pages("workers", nav=[Nav("Workers", "/workers", "operate")])


def is_silent(page: PageRequest, worker: WorkerRow) -> bool:
    return worker.last_seen_at is None or (page.now - worker.last_seen_at).total_seconds() >= ALIVE_SECONDS


async def silent_workers(page: PageRequest) -> list[WorkerRow]:
    """Those that fell silent with work in their hands; the others have simply gone."""
    return [worker for worker in await page.hf.workers() if worker.running and is_silent(page, worker)]


@pages.get("/workers", "operate")
async def list_workers(page: PageRequest) -> Any:
    workers = await page.hf.workers()
    alive = [worker for worker in workers if not is_silent(page, worker)]
    return page.render(
        "workers.html",
        workers=[
            (worker, "silent" if is_silent(page, worker) else "draining" if worker.draining else "alive")
            for worker in sorted(workers, key=lambda worker: (is_silent(page, worker), worker.id))[:SHOWN_MAX]
        ],
        alive=len(alive),
        slots=sum(worker.concurrency for worker in alive),
        busy=sum(worker.running for worker in alive),
        left_out=max(0, len(workers) - SHOWN_MAX),
    )
