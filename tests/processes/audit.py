"""An auditor inside the database: triggers that write down every move of every job, whoever makes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from holdfast import Holdfast, State
from holdfast.job import MOVES

MOVED = "old.state <> 'running' OR new.state <> 'running' OR old.run_no <> new.run_no"
"""Also from a state to itself, which would be wrong; only a request to cancel may touch a running job and leave it running."""

INSTALL = {
    "sqlite": (
        "CREATE TABLE audit_moves (no INTEGER PRIMARY KEY AUTOINCREMENT, job_id, run_id, source, target)",
        f"""CREATE TRIGGER audit_move AFTER UPDATE OF state ON holdfast_jobs WHEN {MOVED} BEGIN
             INSERT INTO audit_moves (job_id, run_id, source, target) VALUES (old.id, old.run_id, old.state, new.state);
           END""",
    ),
    "postgres": (
        """CREATE TABLE public.audit_moves
             (no bigint GENERATED ALWAYS AS IDENTITY, job_id text, run_id text, source text, target text)""",
        """CREATE FUNCTION public.audit_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.audit_moves (job_id, run_id, source, target) VALUES (old.id, old.run_id, old.state, new.state);
             RETURN NULL;
           END $$""",
        f"""CREATE TRIGGER audit_move AFTER UPDATE OF state ON holdfast.jobs
             FOR EACH ROW WHEN ({MOVED}) EXECUTE FUNCTION public.audit_move()""",
    ),
}

LEGAL = {(move.source, move.target) for move in MOVES}


class Moved(NamedTuple):
    job_id: str
    run_id: str
    """The run that the job was in before the move."""
    source: State
    target: State


async def install(hf: Holdfast) -> None:
    async with hf.transaction() as tx:
        for statement in INSTALL[hf.store.name]:
            await tx.execute(statement)


async def moves(hf: Holdfast) -> list[Moved]:
    """All of them, in the order in which they were made."""
    async with hf.transaction() as tx:
        rows = await tx.fetch("SELECT job_id, run_id, source, target FROM audit_moves ORDER BY no")
    return [Moved(row["job_id"], row["run_id"], State(row["source"]), State(row["target"])) for row in rows]


def completions(seen: Iterable[Moved]) -> dict[str, list[str]]:
    """Job id -> the runs that completed it."""
    runs: dict[str, list[str]] = {}
    for move in seen:
        if move.target is State.COMPLETED:
            runs.setdefault(move.job_id, []).append(move.run_id)
    return runs


def wrongs(seen: Iterable[Moved]) -> list[str]:
    """What must never happen to a job: completed twice, a move that is not in the table, a state out of nowhere."""
    seen = list(seen)
    found = [f"job {job} was completed {len(runs)} times" for job, runs in completions(seen).items() if len(runs) > 1]
    states: dict[str, State] = {}
    runs_claimed: Counter[str] = Counter()
    for move in seen:
        if (move.source, move.target) not in LEGAL:
            found.append(f"job {move.job_id} went from {move.source} to {move.target}")
        if states.get(move.job_id, State.QUEUED) is not move.source:
            found.append(f"job {move.job_id} was {states[move.job_id]} and left {move.source}")
        states[move.job_id] = move.target
        runs_claimed[move.run_id] += move.target is State.RUNNING
    found += [f"run {run} was handed out {count} times" for run, count in runs_claimed.items() if count > 1]
    return found
