"""What must be true of every job when a campaign of kills and outages is over. Each broken rule is one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from holdfast import Holdfast, State
from tests.processes import audit
from tests.processes.audit import Moved
from tests.processes.scene import Mark

TABLES = {"sqlite": ("holdfast_jobs", "holdfast_runs"), "postgres": ("holdfast.jobs", "holdfast.runs")}


class Kept(NamedTuple):
    """A job as the database holds it at the end."""

    id: str
    seq: int
    task: str
    state: State
    run_no: int
    order: str | None
    result: str | None
    cancel_requested: bool
    runs_in_history: int
    tenant: str | None


async def verdict(
    hf: Holdfast, acknowledged: set[str], started: Iterable[Mark], done: Iterable[Mark], limits: Mapping[str, int]
) -> list[str]:
    """All that is wrong; nothing, if every promise was kept. `limits`: how many jobs of a tenant may run at once."""
    jobs, moves = await _kept(hf), await audit.moves(hf)
    return [
        *_lost(jobs, acknowledged),
        *audit.wrongs(moves),
        *_wrong_ends(jobs),
        *_wrong_results(jobs, moves, done),
        *_run_twice(started),
        *_wrong_history(jobs, moves),
        *_out_of_order(jobs, moves),
        *_above_limits(jobs, moves, limits),
    ]


async def _kept(hf: Holdfast) -> dict[str, Kept]:
    jobs, runs = TABLES[hf.store.name]
    async with hf.transaction() as tx:
        rows = await tx.fetch(
            f"""SELECT j.id, j.seq, j.task, j.state, j.run_no, j.order_key, j.result,
                       j.cancel_requested_at IS NOT NULL AS cancelled,
                       (SELECT count(*) FROM {runs} r WHERE r.job_id = j.id) AS runs, j.tenant FROM {jobs} j"""
        )
    return {str(row["id"]): _kept_from(row) for row in rows}


def _kept_from(row: dict[str, object]) -> Kept:
    job_id, seq, task, state, run_no, order, result, cancelled, runs, tenant = row.values()
    text = msgspec.json.decode(result) if isinstance(result, str) else None
    return msgspec.convert((str(job_id), seq, task, state, run_no, order, text, bool(cancelled), runs, tenant), Kept)


def _lost(jobs: dict[str, Kept], acknowledged: set[str]) -> list[str]:
    return [f"job {job_id} was acknowledged and is gone" for job_id in sorted(acknowledged - set(jobs))]


def _wrong_ends(jobs: dict[str, Kept]) -> list[str]:
    found = []
    for job in jobs.values():
        right = {State.FAILED if job.task == "always_fail" else State.COMPLETED}
        if job.cancel_requested:
            right.add(State.CANCELLED)
        if job.state not in right:
            found.append(f"job {job.id} ({job.task}) is {job.state}")
    return found


def _wrong_results(jobs: dict[str, Kept], moves: list[Moved], done: Iterable[Mark]) -> list[str]:
    """A completed job holds what the run that completed it returned, and that run did go through to its end."""
    went_through = {mark.run_id for mark in done}
    completed_by = {job_id: runs[0] for job_id, runs in audit.completions(moves).items()}
    completed = [job for job in jobs.values() if job.state is State.COMPLETED]
    return [
        f"job {job.id} ({job.task}) was completed by run {completed_by.get(job.id)} with the result {job.result}"
        for job in completed
        if not completed_by.get(job.id) == job.result in went_through
    ]


def _run_twice(started: Iterable[Mark]) -> list[str]:
    times = Counter(mark.run_id for mark in started)
    return [f"run {run_id} was executed {count} times" for run_id, count in times.items() if count > 1]


def _wrong_history(jobs: dict[str, Kept], moves: list[Moved]) -> list[str]:
    """Every claim has its number, and every run that did not end its job is in the history."""
    claims = Counter(move.job_id for move in moves if move.target is State.RUNNING)
    sent_back = Counter(move.job_id for move in moves if move.source is State.RUNNING and move.target is State.QUEUED)
    return [
        f"job {job.id} has {job.run_no} runs and {job.runs_in_history} in its history, "
        f"but was claimed {claims[job.id]} times and sent back {sent_back[job.id]} times"
        for job in jobs.values()
        if (job.run_no, job.runs_in_history) != (claims[job.id], sent_back[job.id])
    ]


def _out_of_order(jobs: dict[str, Kept], moves: list[Moved]) -> list[str]:
    """With one ordering key of a tenant: never two at a time, and none before an older one has ended."""
    found, states = [], {job_id: State.QUEUED for job_id, job in jobs.items() if job.order is not None}
    by_key: dict[tuple[str | None, str | None], list[Kept]] = {}
    for job_id in states:
        by_key.setdefault((jobs[job_id].tenant, jobs[job_id].order), []).append(jobs[job_id])
    for move in moves:
        if move.job_id not in states:
            continue
        job = jobs[move.job_id]
        if move.target is State.RUNNING:
            found += [
                f"job {job.id} was started although {other.id}, {states[other.id]}, comes before it in {job.order}"
                for other in by_key[job.tenant, job.order]
                if states[other.id] is State.RUNNING or (other.seq < job.seq and not states[other.id].ended)
            ]
        states[move.job_id] = move.target
    return found


def _above_limits(jobs: dict[str, Kept], moves: list[Moved], limits: Mapping[str, int]) -> list[str]:
    found, running = [], Counter[str]()
    for move in moves:
        tenant = jobs[move.job_id].tenant if move.job_id in jobs else None
        if tenant is not None and tenant in limits:
            running[tenant] += (move.target is State.RUNNING) - (move.source is State.RUNNING)
            if running[tenant] > limits[tenant] and move.target is State.RUNNING:
                found.append(f"{running[tenant]} jobs of {tenant} ran at once, and {limits[tenant]} may")
    return found
