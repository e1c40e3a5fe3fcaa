"""Step 2, hand out. The single writer makes limits exact; holds keep it from meeting what cannot be claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast.store.protocol import HOPS, Claim, Claimed, Turn
from holdfast.store.sqlite.session import Session, as_json

DUE_LIFTED_MAX = 1000
KEYS_PARKED_MAX = 1000


class Question(msgspec.Struct):
    """What a worker asks for."""

    worker: str
    machine: str | None
    queues: Sequence[str]
    tasks: Sequence[str]
    limit: int
    cursors: Mapping[str, str | None]
    hops: int
    hints: Sequence[str]


class Lane(msgspec.Struct):
    """A tenant of a queue on the way round. Room None: no limit."""

    tenant: str
    room: int | None
    weight: int

    def may_take(self, share: int, left: int) -> int:
        return min(left if self.room is None else self.room, share * self.weight, left)


def nothing_to_claim(session: Session, queues: Sequence[str], tasks: Sequence[str]) -> Claim | None:
    """The empty claim if there is nothing to take: an idle worker then never asks for the write lock."""
    row = session.one("job_claimable_exists", queues=as_json(queues), tasks=as_json(tasks))
    if row is None or row["claimable"] or (row["due_at"] is not None and row["due_at"] <= session.now):
        return None
    turns = [Turn(queue, None, around=True, busy=False, wrapped=True) for queue in queues]
    return Claim([], None if row["due_at"] is None else row["due_at"] - session.now, turns)


def claim(session: Session, asked: Question) -> Claim:
    lifted = session.run("job_lift_due", limit=DUE_LIFTED_MAX)
    if lifted:
        asked.hops = max(asked.hops, HOPS)
    found = Claim([])
    parked = 0
    for queue in asked.queues:
        if len(found.jobs) == asked.limit:
            break
        parked += _claim_from_queue(session, asked, queue, found)
    if len(found.jobs) < asked.limit:
        missed = bool(lifted) and not all(turn.around for turn in found.turns)
        found.next_due_seconds = _next_due_seconds(session, missed or parked >= KEYS_PARKED_MAX)
    return found


def _claim_from_queue(session: Session, asked: Question, queue: str, found: Claim) -> int:
    """Adds to what was found; how many ordering keys were parked."""
    left, full = _queue_room(session, queue, asked.limit - len(found.jobs))
    turn = Turn(queue, asked.cursors.get(queue), around=True, busy=False, full=full, wrapped=True)
    way = _way_round(session, asked, turn) if left else []
    tenants = way + [tenant for tenant in asked.hints if tenant not in way]
    share = -(-left // max(1, len(tenants)))
    parked, first = 0, True
    while left and tenants:
        lanes = _lanes(session, tenants)
        turn.held = turn.held or any(lane.room == 0 for lane in lanes)
        taken = blocked = 0
        for lane in lanes:
            candidates, behind = _candidates(session, asked, queue, lane, lane.may_take(share, left - taken))
            blocked += behind
            jobs = _take(session, candidates, asked)
            found.jobs += jobs
            taken += len(jobs)
            if taken == left:
                turn.around = turn.wrapped = False
                # Not where all on the way have had their share, or where hints were served, which lie anywhere.
                if first and lane.tenant in way:
                    turn.cursor = lane.tenant
                break
        left -= taken
        parked += blocked
        unequal = any(lane.room is None or lane.room > share * lane.weight for lane in lanes) and share < left + taken
        if parked >= KEYS_PARKED_MAX or not (blocked or (taken and unequal)):
            break
        share, first = left, False
    found.turns.append(turn)
    return parked


def _queue_room(session: Session, queue: str, most: int) -> tuple[int, bool]:
    row = session.all("queue_get", queue=queue)[0]
    if row["paused_at"] is not None:
        return 0, True
    if row["limit"] is None:
        return most, False
    room = max(0, row["limit"] - row["running"])
    return min(most, room), room < most


def _way_round(session: Session, asked: Question, turn: Turn) -> list[str]:
    """The tenants to look at, from the cursor on; the turn goes there."""
    cursor = turn.cursor
    tenants = _lanes_after(session, turn.queue, cursor, asked.hops)
    turn.wrapped = len(tenants) < asked.hops
    if cursor is not None and turn.wrapped:
        tenants += [t for t in _lanes_after(session, turn.queue, None, asked.hops - len(tenants)) if t <= cursor]
    turn.around = len(tenants) < asked.hops
    turn.cursor = tenants[-1] if tenants else cursor
    return tenants


def _lanes_after(session: Session, queue: str, after: str | None, most: int) -> list[str]:
    if most < 1:
        return []
    beginning = -1 if after is None else after
    return [row["tenant"] for row in session.all("lanes_after", queue=queue, most=most, after=beginning)]


def _lanes(session: Session, tenants: list[str]) -> list[Lane]:
    if tenants == [""]:
        return [Lane("", None, 1)]
    return [Lane(row["lane"], row["room"], row["weight"]) for row in session.all("lanes_room", lanes=as_json(tenants))]


def _candidates(session: Session, asked: Question, queue: str, lane: Lane, limit: int) -> tuple[list[int], int]:
    """What may run, and how many ordering keys were parked on the way."""
    if limit < 1:
        return [], 0
    rows = session.all("job_candidates", queue=queue, lane=lane.tenant, tasks=as_json(asked.tasks), limit=limit)
    blocked = {(row["tenant"], row["order_key"]) for row in rows if not row["free"]}
    for tenant, order_key in blocked:
        session.run("job_park", tenant=tenant, order_key=order_key)
    return [row["seq"] for row in rows if row["free"]], len(blocked)


def _take(session: Session, seqs: list[int], asked: Question) -> list[Claimed]:
    if not seqs:
        return []
    rows = session.all("job_claim", seqs=as_json(seqs), worker=asked.worker, machine=asked.machine)
    taken = {row["seq"]: row for row in rows}
    return [Claimed(*taken[seq][1:]) for seq in seqs]


def _next_due_seconds(session: Session, more_now: bool) -> float | None:
    if more_now:
        return 0.0
    row = session.one("job_claimable_exists", queues="[]", tasks="[]")
    return None if row is None or row["due_at"] is None else max(0.0, row["due_at"] - session.now)
