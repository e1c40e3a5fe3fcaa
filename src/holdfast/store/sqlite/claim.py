"""Step 2, hand out. The single writer makes it exact; holds keep it from meeting what cannot be claimed."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.protocol import Claim, Claimed
from holdfast.store.sqlite.session import Session, as_json

DUE_LIFTED_MAX = 1000
KEYS_PARKED_MAX = 1000


def nothing_to_claim(session: Session, queues: Sequence[str], tasks: Sequence[str]) -> Claim | None:
    """The empty claim if there is nothing to take: an idle worker then never asks for the write lock."""
    row = session.one("job_claimable_exists", queues=as_json(queues), tasks=as_json(tasks))
    if row is None or row["claimable"] or (row["due_at"] is not None and row["due_at"] <= session.now):
        return None
    return Claim([], None if row["due_at"] is None else row["due_at"] - session.now)


def claim(session: Session, worker: str, machine: str | None, queues: Sequence[str], tasks: Sequence[str], limit: int) -> Claim:
    session.run("job_lift_due", limit=DUE_LIFTED_MAX)
    jobs: list[Claimed] = []
    known = as_json(tasks)
    parked = 0
    for queue in queues:
        while len(jobs) < limit and parked < KEYS_PARKED_MAX:
            candidates = session.all("job_candidates", queue=queue, tasks=known, limit=limit - len(jobs))
            jobs += _take(session, [row["seq"] for row in candidates if row["free"]], worker, machine)
            blocked = {(row["tenant"], row["order_key"]) for row in candidates if not row["free"]}
            for tenant, order_key in blocked:
                session.run("job_park", tenant=tenant, order_key=order_key)
            parked += len(blocked)
            if not blocked:
                break
    return Claim(jobs) if len(jobs) == limit else Claim(jobs, _next_due_seconds(session, parked))


def _take(session: Session, seqs: list[int], worker: str, machine: str | None) -> list[Claimed]:
    if not seqs:
        return []
    taken = {row["seq"]: row for row in session.all("job_claim", seqs=as_json(seqs), worker=worker, machine=machine)}
    return [Claimed(*taken[seq][1:]) for seq in seqs]


def _next_due_seconds(session: Session, parked: int) -> float | None:
    if parked >= KEYS_PARKED_MAX:
        return 0.0  # there may be more behind those that were parked just now
    row = session.one("job_claimable_exists", queues="[]", tasks="[]")
    return None if row is None or row["due_at"] is None else max(0.0, row["due_at"] - session.now)
