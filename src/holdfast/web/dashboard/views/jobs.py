"""Jobs and dead letters: filtered lists, and what is done to many at once."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import msgspec

from holdfast import bulk
from holdfast.bulk import BulkVerb
from holdfast.errors import HoldfastError, InvalidOption, JobConflict, JobNotFound
from holdfast.ids import LAST_ID, is_uuid
from holdfast.job import Job, State
from holdfast.pages import Nav, Pages
from holdfast.web.dashboard import filters, words
from holdfast.web.dashboard.filters import Filter
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.rows import row

PER_PAGE = 50
NAMED_TASKS_MAX = 5
LOOKED_AT = 1_000
"""How many jobs a filter goes through before it asks whether to go on."""
LOOKED_AT_OF_ONE = 250
"""The same within one organization, of each state: its jobs lie scattered among those of the others, and cost more each."""
ACTED_ON_MAX = 5_000
"""Of all that match, at a time: the question counts them before it is shown, and again before anything is done."""


class Verb(NamedTuple):
    does: BulkVerb
    act: str
    button: str
    sentence: str
    done: str


VERBS = {
    "cancel": Verb(BulkVerb.CANCEL, "cancel", "Cancel", "Cancels", "cancelled"),
    "retry": Verb(BulkVerb.RETRY, "retry", "Retry", "Queues again", "retried"),
    "replay": Verb(BulkVerb.RETRY, "retry", "Replay", "Queues again", "retried"),
}
"""By what forms send. Dead letters are replayed, which is the same as retrying a job."""

pages = Pages(
    "jobs",
    nav=[
        Nav("Jobs", "/jobs", "read_jobs"),
        Nav("Dead letters", "/dead", "read_jobs"),
    ],
)


@pages.get("/jobs", "read_jobs")
async def list_jobs(page: PageRequest) -> Any:
    wanted = filters.read(page.query, page.tenant, page.now)
    return await _list(page, wanted, dead=False)


@pages.get("/dead", "read_jobs")
async def list_dead(page: PageRequest) -> Any:
    wanted = filters.read(page.query, page.tenant, page.now, state=State.FAILED)
    return await _list(page, wanted, dead=True)


async def _list(page: PageRequest, wanted: Filter, *, dead: bool) -> Any:
    cursor = page.query.get("cursor")
    if cursor is not None and not is_uuid(cursor):
        raise InvalidOption("cursor= must be the id of a job.")
    since = None if page.query.get("all") else await _bound(page, wanted, cursor or LAST_ID)
    where = msgspec.structs.replace(wanted.where, since=since)
    jobs = await page.hf.store.job_list(where, cursor=cursor, limit=PER_PAGE + 1)
    counts, cap = await page.counts() if not (dead or wanted.narrow) else ({}, 0)
    return page.render(
        "jobs.html",
        dead=dead,
        wanted=wanted,
        rows=[row(page, job) for job in jobs[:PER_PAGE]],
        next_cursor=jobs[PER_PAGE - 1].id if len(jobs) > PER_PAGE else None,
        counts=counts,
        cap=cap,
        total=sum(counts.values()),
        states=list(State),
        spans=filters.SPAN_WORDS,
        further=since if since is not None and len(jobs) <= PER_PAGE else None,
        looked_at=LOOKED_AT if page.tenant is None else LOOKED_AT_OF_ONE,
    )


async def _bound(page: PageRequest, wanted: Filter, cursor: str) -> str | None:
    """Where a search for something rare stops by itself. States and batches have an index of their own."""
    if wanted.where.batch or (not wanted.narrow and wanted.where.state is not State.QUEUED):
        return None
    shared, tenant, state = page.hf.store.shared, page.tenant, wanted.where.state
    if tenant is None:
        found = await shared("job_newest_bound", cursor, LOOKED_AT)
    elif state is None:
        found = await shared("job_newest_bound_of_tenant", tenant, cursor, LOOKED_AT_OF_ONE)
    else:
        found = await shared("job_newest_bound_of_state", tenant, cursor, LOOKED_AT_OF_ONE, state)
    return str(found[0]["id"]) if found else None


@pages.get("/jump", "read_jobs")
async def jump(page: PageRequest) -> Any:
    """What was typed into the box: an id, `tag:x` and the like, or the name of a task."""
    asked = page.query.get("q", "").strip()[:200]
    if is_uuid(asked.lower()):
        return page.redirect(f"/jobs/{asked.lower()}")
    kind, colon, name = asked.partition(":")
    if colon and kind in ("tag", "task", "queue", "project", "batch", "state") and name.strip():
        return page.redirect("/jobs", **{kind: name.strip()})
    if not asked:
        return page.redirect("/jobs")
    return page.redirect("/jobs", **{"task" if asked in page.hf.tasks else "tag": asked})


@pages.post("/jobs/act", "read_jobs")
async def act(page: PageRequest) -> Any:
    """Those that are ticked, or all that match; asked first, with the number and the filter."""
    form = await page.form()
    verb = VERBS.get(form.get("verb"))
    if verb is None:
        raise InvalidOption("Choose what to do: cancel or retry.")
    page.require(verb.act)
    if form.get("scope") == "filter":
        return await _act_by_filter(page, verb)
    ids = list(dict.fromkeys(form.all("id")))[:PER_PAGE]
    if not ids:
        raise InvalidOption("No job is ticked; tick some, or choose all that match.")
    return await _act_on_selected(page, verb, ids)


async def _act_on_selected(page: PageRequest, verb: Verb, ids: list[str]) -> Any:
    jobs = [job for job in [await _job_or_none(page, job_id) for job_id in ids] if job is not None]
    if not jobs:
        raise JobNotFound("None of these jobs is there any more.")
    tasks = Counter(job.task for job in jobs).most_common(NAMED_TASKS_MAX + 1)
    named = ", ".join(f"{n} × {task}" for task, n in tasks[:NAMED_TASKS_MAX]) + (", …" if len(tasks) > NAMED_TASKS_MAX else "")
    question = await page.confirmed(
        f"{verb.button} {words.many(len(jobs), 'job')}?",
        f"{verb.sentence} the {words.many(len(jobs), 'job')} that you ticked: {named}. "
        "Those that no longer allow it are left alone.",
        button=f"{verb.button} {words.many(len(jobs), 'job')}",
        count=len(jobs),
        danger=verb.does is BulkVerb.CANCEL,
    )
    if question is not None:
        return question
    changed = 0
    for job in jobs:
        try:
            await (page.hf.cancel if verb.does is BulkVerb.CANCEL else page.hf.retry)(job.id, by=page.actor, tenant=page.tenant)
            changed += 1
        except (JobConflict, JobNotFound):
            continue
    return await page.redirect_back("/jobs", verb.done, n=changed)


async def _act_by_filter(page: PageRequest, verb: Verb) -> Any:
    form = await page.form()
    given = {name: form.get(name) for name in ("state", "last", *filters.NAMES)}
    wanted = filters.read(given, page.tenant, page.now)
    found = await bulk.count(page.hf.store, verb.does, wanted.where, ACTED_ON_MAX)
    if not found.count:
        raise InvalidOption(f"There is nothing to {verb.button.lower()} among the {wanted.words}.")
    at_least = " There are more: this acts on the newest of them, and can be done again." if found.capped else ""
    question = await page.confirmed(
        f"{verb.button} {words.many(found.count, 'job')}?",
        f"{verb.sentence} all that match this filter and allow it: {wanted.words}.{at_least}",
        button=f"{verb.button} {words.many(found.count, 'job')}",
        count=found.count,
        danger=verb.does is BulkVerb.CANCEL,
    )
    if question is not None:
        return question
    result = await bulk.act(page.hf.store, verb.does, wanted.where, page.actor, confirm=found.count, most=ACTED_ON_MAX)
    return await page.redirect_back("/jobs", verb.done, n=result.done)


async def _job_or_none(page: PageRequest, job_id: str) -> Job[Any] | None:
    try:
        found: Job[Any] = await page.hf.get(job_id, tenant=page.tenant)
    except HoldfastError:
        return None
    return found
