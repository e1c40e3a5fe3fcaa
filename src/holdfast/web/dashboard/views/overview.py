"""The overview: how it is going, what needs somebody, and the queues."""

from __future__ import annotations

from typing import Any

from holdfast.job import State
from holdfast.pages import Nav, Pages
from holdfast.stats import Stats
from holdfast.store.protocol import JobFilter
from holdfast.web.dashboard import history, words
from holdfast.web.dashboard.frame import Figures, PageRequest
from holdfast.web.dashboard.rows import row, spent
from holdfast.web.dashboard.views.queues import queue_rows
from holdfast.web.dashboard.views.workers import silent_workers

FAILED_SHOWN = 6
QUEUES_SHOWN = 12

pages = Pages("overview", nav=[Nav("Overview", "/", "read_jobs")])


@pages.get("/", "read_jobs")
async def overview(page: PageRequest) -> Any:
    hf, tenant = page.hf, page.tenant
    figures = await page.figures()
    stats = figures.stats
    window = history.window_named(page.query.get("last", ""))
    past = await _past(page, window)
    failed = await hf.store.job_list(JobFilter(tenant=tenant, state=State.FAILED), cursor=None, limit=FAILED_SHOWN)
    queues = await queue_rows(page, figures.loads)
    return page.render(
        "overview.html",
        stats=stats,
        counts=_tiles(stats),
        past=past,
        newest_of_tenant=history.NEWEST_OF_TENANT,
        windows=history.WINDOWS.values(),
        kinds=history.KINDS,
        failed=[row(page, job) for job in failed],
        queues=queues[:QUEUES_SHOWN],
        more_queues=max(0, len(queues) - QUEUES_SHOWN),
        notes=await _notes(page, figures),
        is_new=not sum(stats.counts.values()),
    )


async def _past(page: PageRequest, window: history.Window) -> history.History:
    tenant = page.tenant
    if tenant is None:
        return await history.of_all(page.hf, window)
    return await page.remembered("past", lambda: history.of_tenant(page.hf, tenant, window), part=window.name)


def _tiles(stats: Stats) -> dict[str, int]:
    """By state, where those that wait for their time stand apart from those that wait for a worker."""
    scheduled = sum(queue.load.scheduled for queue in stats.queues.values())
    queued = stats.counts["queued"]
    waiting = queued if queued >= stats.count_cap else max(0, queued - scheduled)
    return {**stats.counts, "queued": waiting, "scheduled": scheduled}


async def _notes(page: PageRequest, figures: Figures) -> list[dict[str, str]]:
    """What needs somebody, the worst first; each with the page that helps."""
    found = []
    stats, at_least = figures.stats, "At least " if figures.at_least else ""
    if stats.orphaned:
        said = f"{at_least}{words.many(stats.orphaned, 'job')} waited for a minute or more and no live worker knows them."
        found.append({"level": "error", "text": said, "link": page.link("/jobs", state="queued"), "word": "See the jobs"})
    if page.may("operate"):
        for worker in await silent_workers(page):
            said = f"Worker {worker.id} has been silent for {words.span(spent(worker.last_seen_at, None, page.now))}."
            if worker.running:
                said += f" Its {words.many(worker.running, 'job')} will be taken up by others when their leases end."
            found.append({"level": "error", "text": said, "link": page.link("/workers"), "word": "See the workers"})
    if stats.stuck:
        said = f"{at_least}{words.many(stats.stuck, 'job')} without a valid lease or past the deadline: "
        said += "the next recovery pass takes them."
        found.append({"level": "warning", "text": said, "link": page.link("/jobs", state="running"), "word": "See the jobs"})
    if stats.slow:
        said = f"{at_least}{words.many(stats.slow, 'job')} taking longer than expected."
        found.append({"level": "warning", "text": said, "link": page.link("/jobs", state="running"), "word": "See the jobs"})
    if page.tenant is not None and any(queue.load.waiting for queue in stats.queues.values()):
        tenant = page.tenant
        why = await page.remembered("why", lambda: page.hf.why_tenant(tenant))
        if why.code in ("tenant_limit", "tenant_paused"):
            text = why.sentence
            found.append({"level": "warning", "text": text, "link": page.link("/organization"), "word": "See the limits"})
    elif stats.oldest_wait_seconds and stats.oldest_wait_seconds > 60:
        oldest = max(stats.queues.values(), key=lambda queue: queue.load.oldest_wait_seconds or 0.0)
        said = f"The oldest job in queue {oldest.load.queue} has been waiting for {words.span(stats.oldest_wait_seconds)}."
        link = page.link("/jobs", state="queued", queue=oldest.load.queue)
        found.append({"level": "warning", "text": said, "link": link, "word": "See why"})
    return found
