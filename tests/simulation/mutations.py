"""Bugs to be planted: each takes away one guard, and the simulation must notice."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

from holdfast.errors import StorageError
from holdfast.processes.claimer import Claimer
from holdfast.store import shared
from holdfast.store.sqlite import claim, finish, reap
from holdfast.store.sqlite.session import STATEMENTS, Session
from tests.simulation.stores import InlineStore


class Mutation(NamedTuple):
    name: str
    plant: Callable[[], contextlib.AbstractContextManager[Any]]
    found_as: str
    """Part of the sentence in which it is told."""


def _text(
    statement: str, old: str, new: str, statements: dict[str, str] = STATEMENTS
) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    def plant() -> contextlib.AbstractContextManager[Any]:
        assert statements[statement].count(old) == 1, f"{statement} no longer says {old!r}"
        return mock.patch.dict(statements, {statement: statements[statement].replace(old, new)})

    return plant


@contextlib.contextmanager
def _room_without_lock() -> Iterator[None]:
    """The room of tenants is looked up first, and the jobs are taken in a transaction of their own."""
    claim_alone, rooms = InlineStore.job_claim, claim._lanes
    known: dict[str, claim.Lane] = {}

    async def look_then_claim(self: InlineStore, **asked: Any) -> Any:
        def look(session: Session) -> list[claim.Lane]:
            tenants = [tenant for queue in asked["queues"] for tenant in claim._lanes_after(session, queue, None, 64)]
            return rooms(session, tenants or [""])

        lanes = await self._read(look)
        known.clear()
        known.update({lane.tenant: lane for lane in lanes})
        return await claim_alone(self, **asked)

    def lanes_as_known(session: Session, tenants: list[str]) -> list[claim.Lane]:
        return [known.get(lane.tenant, lane) for lane in rooms(session, tenants)]

    with mock.patch.object(InlineStore, "job_claim", look_then_claim), mock.patch.object(claim, "_lanes", lanes_as_known):
        yield


async def _leave_at_once(self: Claimer) -> bool:
    with contextlib.suppress(StorageError):
        await self._body.announce(draining=True)
        return True
    return False


def _no_history(session: Session, *args: Any, **values: Any) -> int:
    return 0 if args[0] == "run_insert" else _run(session, *args, **values)


_run = Session.run

AT_ONCE = "at once and may run"
NO_COUNT = "SELECT count(*)", "SELECT 0 * count(*)"

MUTATIONS = [
    Mutation(
        "the fence of a completion",
        _text("job_complete", "AND run_id = done.value ->> '$.run_id' ", ""),
        "although its run was another one",
    ),
    Mutation(
        "the fence of every other end", _text("job_leased", "AND run_id = :run_id ", ""), "although its run was another one"
    ),
    Mutation(
        "the fence of a completion in the task's own transaction",
        _text("job_complete_one", "AND run_id = done.value ->> '$.run_id' ", ""),
        "which is not what its run returned",
    ),
    Mutation("the fence of a heartbeat", _text("lease_extend", "AND run_id = beat.value ->> '$.run_id' ", ""), "changed lease"),
    Mutation("the fence of progress", _text("progress_set", "AND run_id = :run_id ", ""), "changed progress"),
    Mutation("the fence of steps", _text("step_save", "AND run_id = :run_id ", ""), "kept the step"),
    Mutation("the fence of log lines", _text("log_lease", "AND run_id = :run_id ", ""), "wrote to its log"),
    Mutation("the count of a tenant's limit", _text("lanes_room", *NO_COUNT), AT_ONCE),
    Mutation("the lock of a tenant's limit", _room_without_lock, AT_ONCE),
    Mutation("the count of a queue's limit", _text("queue_get", *NO_COUNT), AT_ONCE),
    Mutation("the time of a job", _text("job_lift_due", "AND run_at <= :now ", ""), "its time had not come"),
    Mutation("the wait before a retry", _text("job_requeue", ":now + :delay", ":now"), "its time had not come"),
    Mutation(
        "the last look before an idle exit",
        lambda: mock.patch.object(Claimer, "_nothing_left", _leave_at_once),
        "the last worker that was there for it has left",
    ),
    Mutation("the order of a key", _text("job_candidates", "order_key IS NULL OR (", "true OR ("), "ordering key"),
    Mutation(
        "the patience of the reaper", _text("job_reapable", "lease_expires_at < :now OR", "true OR"), "its lease was valid"
    ),
    Mutation("the wait after a second death", _text("job_reapable", "EXISTS (", "0 * EXISTS ("), "time had not come"),
    Mutation("the proof of a death", _text("job_reapable", "OR locked_by IN", "OR locked_by NOT IN"), "its lease was valid"),
    Mutation(
        "the guard of a tick",
        _text("schedule_advance", "AND revision = $3", "AND $3 IS NOT NULL", shared.SQLITE),
        "jobs for one tick",
    ),
    Mutation("the history of runs", lambda: mock.patch.object(Session, "run", _no_history), "in its history"),
    Mutation(
        "a new run id for the next run",
        lambda: mock.patch.object(finish, "new_run_id", lambda: "00000000-0000-4000-8000-000000000000"),
        "handed out twice",
    ),
    Mutation(
        "the cancel request of a run that was lost",
        lambda: mock.patch.object(reap, "_give_up_cancelled", lambda session, job: reap._fail(session, job)),
        "it should be cancelled",
    ),
]
