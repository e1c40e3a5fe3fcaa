"""What must be true after every commit, read from the tables: each broken rule is one sentence.

The watcher knows the tables before and after, and which verb of which process was carried out in between.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.job import MOVES, State
from holdfast.store.protocol import Leaving
from tests.simulation.loop import SimulatedLoop
from tests.simulation.patches import BEGINNING
from tests.simulation.stores import Base, Call

COLUMNS = {
    "sqlite": """SELECT id, seq, task, state, hold, run_id, run_no, attempt, max_attempts, run_at, queue, tenant, order_key,
        order_blocks, locked_by, lease_expires_at, deadline, cancel_requested_at IS NOT NULL, progress, stage, result, backoff
        FROM holdfast_jobs ORDER BY seq""",
    "postgres": """SELECT id::text, seq, task, state, hold, run_id::text, run_no, attempt, max_attempts,
        extract(epoch FROM run_at)::float8, queue, tenant, order_key, order_blocks, locked_by,
        extract(epoch FROM lease_expires_at)::float8 AS lease, extract(epoch FROM deadline)::float8 AS deadline,
        cancel_requested_at IS NOT NULL, progress, stage, result::text, array_to_json(backoff)::text AS backoff
        FROM holdfast.jobs ORDER BY seq""",
}
TABLE = {"sqlite": "holdfast_", "postgres": "holdfast."}
VERBS = {
    "job_claim": {"claim"},
    "job_complete_if_leased": {"complete"},
    "transaction": {"complete"},
    "job_leave_if_leased": {"retry", "snooze", "release", "fail", "cancel"},
    "job_cancel": {"cancel"},
    "job_reap": {"reap"},
    "job_retry_if_ended": {"replay"},
}
"""Verb of the store -> verbs of MOVES."""
FENCED = {"job_complete_if_leased", "job_leave_if_leased", "lease_extend_if_held"}
QUIET = {"worker_save", "worker_seen", "tally_add", "log_append_if_leased", "progress_set_if_leased"}
DEADLINE_GRACE = 30.0
MICROSECOND = 2e-6
"""Times lose a little on their way into a database and back."""


class Row(NamedTuple):
    """A job as the table has it."""

    id: str
    seq: int
    task: str
    state: str
    hold: str | None
    run_id: str
    run_no: int
    attempt: int
    max_attempts: int
    run_at: float
    queue: str
    tenant: str | None
    order_key: str | None
    order_blocks: bool
    locked_by: str | None
    lease: float | None
    deadline: float | None
    cancelling: bool
    progress: float | None
    stage: str | None
    result: str | None
    backoff: str | None

    @property
    def is_running(self) -> bool:
        return self.state == State.RUNNING

    @property
    def has_ended(self) -> bool:
        return State(self.state).ended


class Broken(Exception):
    """A promise was broken."""


class Books:
    """The tables, and what was promised about them."""

    def __init__(self, loop: SimulatedLoop, base: Base) -> None:
        self.jobs: dict[str, Row] = {}
        self.accepted: set[str] = set()
        """Whoever enqueued them was told so."""
        self.rolled_back: set[str] = set()
        self.limits: dict[str, int] = {}
        self.queue_limits: dict[str, int | None] = {}
        self.started: set[str] = set()
        self.went_through: set[str] = set()
        """Runs whose task was begun, and came to its end."""
        self.trace: deque[str] = deque(maxlen=400)
        self.moves = 0
        self.faults: dict[str, int] = {}
        self._loop = loop
        self._base = base
        self._handed_out: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._lost_before: set[str] = set()
        self._lines: dict[str, int] = {}
        self._steps: set[tuple[str, str]] = set()

    @property
    def now(self) -> float:
        return BEGINNING.timestamp() + self._loop.now

    def note(self, what: str) -> None:
        self.trace.append(f"{self._loop.now:9.3f}  {what}")

    # -- from the simulated processes

    def begun(self, run_id: str) -> None:
        if run_id in self.started:
            self._loop.fail(Broken(f"run {run_id} was executed twice"))
        self.started.add(run_id)

    # -- from the stores

    def committed(self, call: Call | None) -> None:
        if self._loop.failure is not None or call is None:
            return
        rows = {row[0]: Row(*row) for row in self._base.look(COLUMNS[self._base.kind])}
        before, self.jobs = self.jobs, rows
        changed = [(before.get(job_id), row) for job_id, row in rows.items() if before.get(job_id) != row]
        told = self._told(changed)
        if told or call.verb not in QUIET:
            self.note(f"{call.process.name:9} {call.verb}{told}")
        try:
            for sentence in self._wrongs(call, before, changed):
                raise Broken(sentence)
        except Exception as broken:
            self._loop.fail(broken)

    def _told(self, changed: list[tuple[Row | None, Row]]) -> str:
        """The moves, with jobs by their number, since their ids differ between two databases."""
        moves = [(old, new) for old, new in changed if old is None or old.state != new.state]
        self.moves += len(moves)
        told = (f"job {new.seq} run {new.run_no}: {'' if old is None else f'{old.state} -> '}{new.state}" for old, new in moves)
        return "".join(f"  {one}" for one in told)

    # -- the rules

    def _wrongs(self, call: Call, before: dict[str, Row], changed: list[tuple[Row | None, Row]]) -> Iterator[str]:
        for job_id in self.accepted - self.jobs.keys():
            yield f"job {job_id} was accepted and is gone"
        for job_id in self.rolled_back & self.jobs.keys():
            yield f"job {job_id} is there although its transaction was rolled back"
        if call.verb == "tenant_set":
            self.limits[call.args[0]] = call.options["max_running"]
        if call.verb == "queue_set":
            self.queue_limits[call.args[0]] = call.options["max_running"]
        for old, new in changed:
            if old is None:
                if call.verb not in ("job_insert_many", "transaction") or new.state != "queued":
                    yield f"job {new.seq} came out of nowhere as {new.state}"
            elif old.state == new.state and old.run_no == new.run_no:
                yield from self._wrong_changes(call, old, new)
            else:
                yield from self._wrong_moves(call, old, new)
        if call.verb == "job_claim":
            yield from self._over_limits([new for old, new in changed if new.is_running])
        if call.verb in ("log_append_if_leased", "job_reap"):
            yield from self._wrong_lines(call, before)
        if call.verb == "step_save_if_leased":
            yield from self._wrong_steps(before)

    def _wrong_changes(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        """Without a move next to nothing may change, and only by whoever may."""
        parts = {name for name, was, is_now in zip(Row._fields, old, new, strict=True) if was != is_now}
        may = {"hold"} if old.state == "queued" else set()
        if old.is_running and call.verb == "lease_extend_if_held" and _names(call, old):
            may = {"lease"}
        told_by_its_run = call.verb == "progress_set_if_leased" and call.args[:2] == (old.id, old.run_id)
        if old.state in ("running", "completed") and told_by_its_run:
            may = {"progress", "stage"}
        if old.is_running and call.verb == "job_cancel":
            may = {"cancelling"}
        if parts - may:
            yield f"{call.verb} of {call.process.name} changed {', '.join(sorted(parts - may))} of job {old.seq} ({old.state})"

    def _wrong_moves(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        told = f"job {old.seq} went from {old.state} to {new.state} by {call.verb} of {call.process.name}"
        legal = {move.verb for move in MOVES if (move.source, move.target) == (old.state, new.state)}
        if not legal & VERBS.get(call.verb, set()):
            yield f"{told}, which is no legal move"
        if call.verb == "job_cancel" and old.is_running:
            yield f"{told}: a running job is only asked to stop"
        if call.verb in FENCED and not _names(call, old):
            yield f"{told}, although its run was another one"
        if old.is_running and new.state == "queued" and (old.cancelling or old.run_id == new.run_id):
            yield f"{told}, although it was to be cancelled, or under its old run id"
        rules = {
            "job_claim": self._wrong_claim,
            "job_complete_if_leased": self._wrong_completion,
            "transaction": self._wrong_completion,
            "job_leave_if_leased": self._wrong_departure,
            "job_reap": self._wrong_rescue,
            "job_retry_if_ended": self._wrong_replay,
        }
        for sentence in rules[call.verb](call, old, new) if call.verb in rules else ():
            yield f"{told}: {sentence}"
        yield from self._wrong_history(new)

    def _wrong_claim(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        if new.run_id in self._handed_out:
            yield "the same run was handed out twice"
        self._handed_out.add(new.run_id)
        if (new.run_no, new.attempt, new.run_id) != (old.run_no + 1, old.attempt + 1, old.run_id):
            yield f"run {old.run_no}, attempt {old.attempt} became run {new.run_no}, attempt {new.attempt}"
        if new.attempt > new.max_attempts:
            yield f"attempt {new.attempt} of {new.max_attempts}"
        if old.run_at > self.now + MICROSECOND or self.now + MICROSECOND < self._not_before.get(new.id, 0.0):
            yield "its time had not come"
        if new.lease is None or new.lease <= self.now or new.locked_by != call.options["worker"]:
            yield "nobody has a lease on it now"
        for other in self.jobs.values():
            if other.order_key is not None and (other.tenant, other.order_key) == (new.tenant, new.order_key):
                if other.is_running and other.id != new.id:
                    yield f"job {other.seq} of the same ordering key was running"
                waits = other.state == "queued" or (other.state == "failed" and other.order_blocks)
                if waits and other.seq < new.seq:
                    yield f"job {other.seq} comes before it in its ordering key"

    def _wrong_completion(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        if old.run_id not in self.went_through or new.result is None or json.loads(new.result) != old.run_id:
            yield f"with the result {new.result}, which is not what its run returned"

    def _wrong_departure(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        departure = next(one for one in call.args[0] if one.run_id == old.run_id)
        ends = {Leaving.CANCEL: "cancelled", Leaving.FAIL: "failed"}
        right = "cancelled" if old.cancelling else ends.get(departure.how, "queued")
        counted = old.attempt - (new.state == "queued" and departure.how in (Leaving.SNOOZE, Leaving.RELEASE))
        if (new.state, new.attempt) != (right, counted):
            yield f"{departure.how} should have made it {right} with {counted} attempts, not {new.attempt}"
        if departure.how is Leaving.FAIL and old.task != "hopeless" and old.attempt < old.max_attempts:
            yield f"given up at attempt {old.attempt} of {old.max_attempts}"
        self._not_before[new.id] = self.now + departure.delay

    def _wrong_rescue(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        expired = old.lease is not None and old.lease < self.now + MICROSECOND
        overdue = old.deadline is not None and old.deadline < self.now - DEADLINE_GRACE + MICROSECOND
        died = old.locked_by in call.options["dead"]
        if not expired and not overdue and not died:
            yield "its lease was valid, so that two may hold it now"
        right = "cancelled" if old.cancelling else "queued" if old.attempt < old.max_attempts else "failed"
        if (new.state, new.attempt) != (right, old.attempt):
            yield f"after attempt {old.attempt} of {old.max_attempts} it should be {right}"
        waits = json.loads(old.backoff) if old.backoff else [0.0]
        at_once = died and new.id not in self._lost_before
        self._not_before[new.id] = self.now + (0.0 if at_once else waits[min(old.attempt, len(waits)) - 1])
        if new.state == "queued":  # a job that ends here keeps its run to itself, and a retry begins anew
            self._lost_before.add(new.id)

    def _wrong_replay(self, call: Call, old: Row, new: Row) -> Iterator[str]:
        self._not_before.pop(new.id, None)
        if new.attempt != 0 or new.run_id == old.run_id:
            yield f"it begins at attempt {new.attempt}"

    def _over_limits(self, claimed: list[Row]) -> Iterator[str]:
        running = [row for row in self.jobs.values() if row.is_running]
        for tenant in {row.tenant for row in claimed if row.tenant is not None}:
            count = sum(row.tenant == tenant for row in running)
            if count > self.limits.get(tenant, 1):
                yield f"tenant {tenant} runs {count} jobs at once and may run {self.limits.get(tenant, 1)}"
        for queue in {row.queue for row in claimed}:
            most, count = self.queue_limits.get(queue), sum(row.queue == queue for row in running)
            if most is not None and count > most:
                yield f"queue {queue} runs {count} jobs at once and may run {most}"

    def _wrong_history(self, job: Row) -> Iterator[str]:
        """Every run that is not the one on the job's own row is in the history, under its number."""
        sql = f"SELECT run_no FROM {TABLE[self._base.kind]}runs WHERE job_id = '{job.id}' ORDER BY run_no"
        numbers = [row[0] for row in self._base.look(sql)]
        if numbers != list(range(1, job.run_no + (job.locked_by is None))):
            yield f"job {job.seq} ({job.state}) is in run {job.run_no} and has the runs {numbers} in its history"

    def _wrong_lines(self, call: Call, before: dict[str, Row]) -> Iterator[str]:
        sql = f"SELECT run_id AS run, min(job_id) AS job, count(*) AS n FROM {TABLE[self._base.kind]}logs GROUP BY run_id"
        if self._base.kind == "postgres":
            sql = sql.replace("run_id AS run, min(job_id)", "run_id::text AS run, min(job_id::text)")
        may = ("running",) if call.verb == "job_reap" else ("running", "completed")
        for run_id, job_id, count in self._base.look(sql):
            if count != self._lines.get(run_id, 0):
                self._lines[run_id] = count
                job = before[job_id]
                if job.run_id != run_id or job.state not in may:
                    yield f"a run of job {job.seq} ({job.state}) that is not its present one wrote to its log"

    def _wrong_steps(self, before: dict[str, Row]) -> Iterator[str]:
        for job_id, run_id, name in self._base.look(f"SELECT job_id, run_id, name FROM {TABLE[self._base.kind]}steps"):
            if (job_id, name) not in self._steps:
                self._steps.add((job_id, name))
                job = before[str(job_id)]
                if job.run_id != str(run_id) or not job.is_running:
                    yield f"a run of job {job.seq} ({job.state}) that is not its present one kept the step {name}"

    def ends(self) -> Iterator[str]:
        """What must be true once all is over."""
        for job in self.jobs.values():
            if not job.has_ended:
                yield f"job {job.seq} ({job.task}) is still {job.state} (hold {job.hold})"
            if job.state == "completed" and job.task == "hopeless":
                yield f"job {job.seq} is completed although its task always fails"
        booked = sorted(
            json.loads(job.result or "") for job in self.jobs.values() if (job.task, job.state) == ("booked", "completed")
        )
        ledger = [row[0] for row in self._base.look("SELECT run_id FROM ledger ORDER BY run_id")]
        if booked != ledger:
            yield f"the ledger has {ledger}, and the runs that completed their jobs with a line in it are {booked}"
        sql = f"SELECT meta, count(*) AS n FROM {TABLE[self._base.kind]}jobs WHERE meta IS NOT NULL GROUP BY meta"
        for meta, count in self._base.look(sql):
            if count > 1:
                yield f"there are {count} jobs for one tick: {meta}"


def _names(call: Call, job: Row) -> bool:
    """Whether the verb names the run that the job is in."""
    return any((one.id, one.run_id) == (job.id, job.run_id) for one in call.args[0])


def summary(books: Books) -> dict[str, Any]:
    states: dict[str, int] = {}
    for job in books.jobs.values():
        states[job.state] = states.get(job.state, 0) + 1
    return dict(sorted(states.items()))
