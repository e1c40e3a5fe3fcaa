"""Jobs in a SQLAlchemy session's transaction. `task.options(tx=session)` needs none of this: here is what goes beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from holdfast import Holdfast
from holdfast.task import JobSpec

MakeJob = Callable[[], JobSpec[Any]]
AnySession = Session | AsyncSession | scoped_session[Any] | async_scoped_session[Any]
_WAITING = "holdfast jobs"
_LISTENING = "holdfast listens"


def holdfast_of(engine: Engine | AsyncEngine, **settings: Any) -> Holdfast:
    """A Holdfast on the engine's own database."""
    return Holdfast(engine.url.render_as_string(hide_password=False), **settings)


def enqueue_at_commit(session: AnySession, make_job: MakeJob) -> None:
    """`enqueue_at_commit(session, lambda: ship.job(order.id))`: called when the session commits, once rows have their ids.

    All jobs of a commit are one statement, in the session's own transaction; workers wake when it commits. What a rollback
    undoes, also one to a savepoint, makes no jobs.
    """
    inner = session() if isinstance(session, scoped_session | async_scoped_session) else session
    sync: Session = inner.sync_session if isinstance(inner, AsyncSession) else inner
    if not sync.info.get(_LISTENING):
        sync.info[_LISTENING] = True
        event.listen(sync, "before_commit", _enqueue_waiting)
        event.listen(sync, "after_soft_rollback", _forget_undone)
    asked_in = sync.get_nested_transaction() or sync.get_transaction()
    sync.info.setdefault(_WAITING, []).append((asked_in, make_job))


def _enqueue_waiting(session: Session) -> None:
    waiting = session.info.get(_WAITING)
    if not waiting or session.in_nested_transaction():  # a savepoint's release comes by here, too
        return
    session.flush()
    session.info[_WAITING] = []
    by_app: dict[int, list[JobSpec[Any]]] = {}
    for _, make_job in waiting:
        spec = make_job()
        by_app.setdefault(id(spec.task.app), []).append(spec)
    for specs in by_app.values():
        specs[0].task.app.enqueue_jobs_sync(specs, session)


def _forget_undone(session: Session, undone: SessionTransaction) -> None:
    kept = [one for one in session.info.get(_WAITING, []) if not _is_within(one[0], undone)]
    session.info[_WAITING] = kept


def _is_within(asked_in: SessionTransaction | None, undone: SessionTransaction) -> bool:
    """What was asked for before the session began a transaction belongs to the outermost."""
    if asked_in is None:
        return undone.parent is None
    found: SessionTransaction | None = asked_in
    while found is not None:
        if found is undone:
            return True
        found = found.parent
    return False
