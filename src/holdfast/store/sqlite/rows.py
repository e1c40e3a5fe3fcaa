"""From rows to the plain data of job.py."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.job import Event, Hold, Job, LogLine, Run, State
from holdfast.store.protocol import Glance, WorkerRow
from holdfast.store.sqlite.session import as_json

_decode = msgspec.json.decode


def time_of(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def job_of(row: sqlite3.Row) -> Job[Any]:
    return Job(
        id=row["id"],
        queue=row["queue"],
        task=row["task"],
        state=State(row["state"]),
        run_id=row["run_id"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        run_no=row["run_no"],
        priority=row["priority"],
        tenant=row["tenant"],
        project=row["project"],
        actor=row["actor"],
        args=_decode(row["args"]),
        hold=Hold(row["hold"]) if row["hold"] else None,
        run_at=time_of(row["run_at"]),
        unique_key=row["unique_key"],
        order_key=row["order_key"],
        locked_by=row["locked_by"],
        machine_id=row["machine_id"],
        lease_expires_at=time_of(row["lease_expires_at"]),
        last_heartbeat_at=time_of(row["last_heartbeat_at"]),
        deadline=time_of(row["deadline"]),
        expected_duration=row["expected_seconds"],
        stage=row["stage"],
        progress=row["progress"],
        cancel_requested_at=time_of(row["cancel_requested_at"]),
        cancel_requested_by=row["cancel_requested_by"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        output=None if row["result"] is None else _decode(row["result"]),
        tags=_decode(row["tags"]) if row["tags"] else [],
        meta=_decode(row["meta"]) if row["meta"] else {},
        enqueued_by=row["enqueued_by"],
        trace_context=row["trace_context"],
        batch=row["batch"],
        created_at=time_of(row["created_at"]),
        started_at=time_of(row["started_at"]),
        finished_at=time_of(row["finished_at"]),
        updated_at=time_of(row["updated_at"]),
    )


def glance_of(row: sqlite3.Row) -> Glance:
    fields = dict(row)
    times = {name: time_of(fields[name]) for name in ("cancel_requested_at", "updated_at")}
    return Glance(**{**fields, **times, "state": State(row["state"]), "hold": Hold(row["hold"]) if row["hold"] else None})


def run_of(row: sqlite3.Row) -> Run:
    times = {"started_at": time_of(row["started_at"]), "finished_at": time_of(row["finished_at"])}
    return Run(**{**dict(row), **times})


def event_of(row: sqlite3.Row) -> Event:
    return Event(**{**dict(row), "data": _decode(row["data"]), "at": time_of(row["at"])})


def log_line_of(row: sqlite3.Row) -> LogLine:
    metadata = _decode(row["metadata"]) if row["metadata"] else None
    return LogLine(**{**dict(row), "metadata": metadata, "created_at": time_of(row["created_at"])})


def worker_of(row: sqlite3.Row) -> WorkerRow:
    lists = {"queues": _decode(row["queues"]), "tasks": _decode(row["tasks"])}
    times = {"started_at": time_of(row["started_at"]), "last_seen_at": time_of(row["last_seen_at"])}
    return WorkerRow(**{**dict(row), **lists, **times, "draining": bool(row["draining"])})


def of_worker(worker: WorkerRow) -> dict[str, Any]:
    """The other way round, but for the times: the database's clock dates both."""
    lists = {"queues": as_json(worker.queues), "tasks": as_json(worker.tasks)}
    values = {**msgspec.structs.asdict(worker), **lists}
    for name in ("heartbeat", "started_at", "last_seen_at"):
        del values[name]
    return values
