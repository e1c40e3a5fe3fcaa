"""From rows to the plain data of job.py."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.job import Event, Hold, Job, LogLine, Run, State
from holdfast.store.protocol import Claim, Claimed, Glance, Turn, WorkerRow

_decode = msgspec.json.decode


def job_of(row: Any) -> Job[Any]:
    fields = dict(row)
    fields["state"] = State(fields["state"])
    fields["hold"] = Hold(fields["hold"]) if fields["hold"] else None
    fields["args"] = _decode(fields["args"])
    fields["output"] = None if fields["output"] is None else _decode(fields["output"])
    fields["tags"] = list(fields["tags"] or ())
    fields["meta"] = _decode(fields["meta"]) if fields["meta"] else {}
    return Job(**fields)


def glance_of(row: Any) -> Glance:
    return Glance(**{**dict(row), "state": State(row["state"]), "hold": Hold(row["hold"]) if row["hold"] else None})


def run_of(row: Any) -> Run:
    return Run(**dict(row))


def event_of(row: Any) -> Event:
    return Event(**{**dict(row), "data": _decode(row["data"])})


def log_line_of(row: Any) -> LogLine:
    return LogLine(**{**dict(row), "metadata": _decode(row["metadata"]) if row["metadata"] else None})


def worker_of(row: Any) -> WorkerRow:
    return WorkerRow(**{**dict(row), "queues": list(row["queues"]), "tasks": list(row["tasks"])})


def of_worker(worker: WorkerRow) -> tuple[Any, ...]:
    """The other way round, but for the times: the database's clock dates both."""
    w = worker
    names = w.id, w.host, w.pid, w.machine_id, w.version, w.queues, w.tasks, w.concurrency, w.running, w.draining
    return *names, w.process, w.heartbeat


def _turn_of(row: Any) -> Turn:
    way, met, full = row["run_no"], row["attempt"], row["max_attempts"]
    met_busy, met_held = bool(met & 1), bool(met & 2)
    return Turn(row["queue"], row["task"], way == 2, met_busy, full=bool(full), wrapped=way > 0, held=met_held)


class Look(NamedTuple):
    """What a claim has learnt about the beginning of a queue, see beginnings.py."""

    queue: str
    last: str | None
    seconds: float


def claim_of(found: list[Any]) -> tuple[Claim, list[Look]]:
    """Rows with an id are jobs; one without but with a queue says how far the claim came there; the last one what is due."""
    claim = Claim([])
    looks = []
    for row in found:
        if row[0] is not None:
            claim.jobs.append(Claimed(str(row[0]), str(row[1]), *tuple(row)[2:]))
        elif row["queue"] is not None:
            claim.turns.append(_turn_of(row))
            looks.append(Look(row["queue"], str(row["run_id"]) if row["run_id"] else None, row["lease_seconds"]))
        else:
            claim.next_due_seconds = row["seconds"]
    return claim, looks
