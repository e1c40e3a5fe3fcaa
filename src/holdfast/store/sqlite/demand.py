"""What waits for a worker, for whoever wakes machines: bounded, whatever there is."""

from __future__ import annotations

from typing import Any

from holdfast.store.protocol import DEMAND_HOPS_MAX, Demand
from holdfast.store.sqlite.session import Session, as_json


def demand(session: Session, enough: int, cap: int) -> list[Demand]:
    found: list[Demand] = []
    may_run = hops = 0
    for waiting in session.all("queue_list_waiting"):
        queue, queue_room = waiting["queue"], _queue_room(session, waiting["queue"])
        lanes = [] if queue_room == 0 else session.all("lanes_after", queue=queue, most=DEMAND_HOPS_MAX - hops, after=-1)
        for lane in lanes:
            if may_run >= enough or hops >= DEMAND_HOPS_MAX:
                return found + _due(session, cap)
            hops += 1
            room = _room(session, lane["tenant"])
            if room == 0:
                continue
            rows = session.all("demand_lane", queue=queue, lane=lane["tenant"], cap=cap)
            found += [Demand(*[*row, room, queue_room]) for row in rows]
            n = sum(row["waiting"] for row in rows)
            may_run += min(n, n if room is None else room, n if queue_room is None else queue_room)
    return found + _due(session, cap)


def _due(session: Session, cap: int) -> list[Demand]:
    rows = session.all("demand_due", cap=cap)
    return [Demand(*[*row, _room(session, row["tenant"]), _queue_room(session, row["queue"])]) for row in rows]


def _room(session: Session, lane: str) -> Any:
    return None if lane == "" else session.all("lanes_room", lanes=as_json([lane]))[0]["room"]


def _queue_room(session: Session, queue: str) -> Any:
    row = session.all("queue_get", queue=queue)[0]
    if row["paused_at"] is not None:
        return 0
    return None if row["limit"] is None else max(0, row["limit"] - row["running"])
