"""Wake-ups: hints that something has happened, so that nobody need ask all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast.clock import ManualClock
from holdfast.store.protocol import TENANT_MARK, UNCHANGED, Leaving, LogBatch, Plan, Store
from holdfast.tx import caller_of
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import LEASE, append, claim, complete, fail, insert, leave, line, new_job, reap, start
from tests.conformance.test_workers import a_worker
from tests.conftest import open_store
from tests.support.waiting import until


class Heard:
    """Every wake-up since the last `forget`."""

    def __init__(self) -> None:
        self.wakes: list[str] = []

    def __call__(self, wake: str) -> None:
        self.wakes.append(wake)

    async def wait_for(self, wake: str) -> None:
        await until(lambda: wake in self.wakes)

    async def forget(self, store: Store) -> None:
        """All that was committed up to now; it may still be on its way, so something is sent after it and waited for."""
        await insert(store, queue="until here")
        await self.wait_for(arrival(store, "until here"))
        self.wakes.clear()


@pytest.fixture
async def heard(store: Store) -> AsyncIterator[Heard]:
    """Listens on `store`, from after whatever a listener is told at its beginning."""
    heard = Heard()
    stop = await store.listen(heard)
    await heard.wait_for("")
    heard.wakes.clear()
    yield heard
    await stop()


async def test_a_listener_is_told_at_once_that_anything_may_have_happened(store: Store) -> None:
    """What was committed before the first look would otherwise be missed by everybody."""
    heard = Heard()
    stop = await store.listen(heard)
    await heard.wait_for("")
    await stop()


def arrival(store: Store, queue: str, tenant: str = "") -> str:
    """The wake-up of a job that came in: PostgreSQL names the tenant too."""
    return f"job:{queue}{TENANT_MARK}{tenant}" if store.name == "postgres" else f"job:{queue}"


async def test_an_insert_wakes_its_queue(store: Store, heard: Heard) -> None:
    """Each queue of the call by its name, and on PostgreSQL each tenant, once."""
    await store.job_insert_many(
        [new_job(queue="a"), new_job(queue="b", tenant="t"), new_job(queue="a"), new_job(queue="b", tenant="t")]
    )
    await heard.wait_for(arrival(store, "a"))
    await heard.wait_for(arrival(store, "b", "t"))
    await insert(store, queue="last")
    await heard.wait_for(arrival(store, "last"))
    assert sorted(heard.wakes) == sorted([arrival(store, "a"), arrival(store, "b", "t"), arrival(store, "last")])


async def test_an_insert_of_many_jobs_wakes_its_queue_without_names(store: Store, heard: Heard) -> None:
    """A thousand tenants are one wake-up, not a thousand."""
    await store.job_insert_many([new_job(queue="many", tenant=f"tenant-{n}") for n in range(1000)])
    await heard.wait_for("job:many")
    assert heard.wakes == ["job:many"]


async def test_a_cancel_wakes_the_worker_of_that_job(store: Store, heard: Heard) -> None:
    """By the job's id, once it is running."""
    run = await start(store)
    await store.job_cancel(run.id, "ana")
    await heard.wait_for(f"cancel:{run.id}")


async def test_cancelling_a_queued_job_wakes_no_worker(store: Store, heard: Heard) -> None:
    """There is nobody to tell."""
    job = await insert(store)
    await store.job_cancel(job.id, "ana")
    await insert(store, queue="afterwards")
    await heard.wait_for(arrival(store, "afterwards"))
    assert f"cancel:{job.id}" not in heard.wakes


@pytest.mark.parametrize("how", [Leaving.RETRY, Leaving.SNOOZE, Leaving.RELEASE])
async def test_a_job_that_goes_back_wakes_its_queue(store: Store, heard: Heard, how: Leaving) -> None:
    """Somebody else may have a free slot."""
    run = await start(store, queue="back")
    await heard.forget(store)
    await leave(store, run, how)
    await heard.wait_for("job:back")


async def test_a_rescued_job_wakes_its_queue(store: Store, heard: Heard, clock: ManualClock) -> None:
    """The reaper may run where no worker is."""
    await start(store, queue="rescued", backoff=[0.0])
    await heard.forget(store)
    clock.advance(LEASE + 1)
    await reap(store)
    await heard.wait_for("job:rescued")


@pytest.mark.parametrize("cancelling", [False, True])
async def test_a_job_that_the_reaper_gives_up_wakes_its_queue(
    store: Store, heard: Heard, clock: ManualClock, cancelling: bool
) -> None:
    """Its place is free, and the worker that could have told is gone."""
    run = await start(store, queue="freed", tenant="t", max_attempts=1)
    if cancelling:
        await store.job_cancel(run.id, "ana")
    await heard.forget(store)
    clock.advance(LEASE + 1)
    await reap(store)
    await heard.wait_for(arrival(store, "freed", "t"))


@pytest.mark.parametrize("change", ["tenant_set", "tenant_pause", "plan_set", "queue_set", "queue_pause", "wake"])
async def test_a_changed_limit_or_pause_wakes_everybody(store: Store, heard: Heard, change: str) -> None:
    """It may have opened the way for any number of jobs."""
    changes = {
        "tenant_set": lambda: store.tenant_set("t", plan="pro", max_running=UNCHANGED, queue_depth=UNCHANGED, by=None),
        "tenant_pause": lambda: store.tenant_pause("t", paused=False, by=None),
        "plan_set": lambda: store.plan_set(Plan("free", 2, 10), by=None),
        "queue_set": lambda: store.queue_set("mail", max_running=None, by=None),
        "queue_pause": lambda: store.queue_pause("mail", paused=False, by=None),
        "wake": store.wake,
    }
    await changes[change]()
    await heard.wait_for("")


async def test_a_worker_that_leaves_wakes_the_others(store: Store, heard: Heard, open_another: OpenAnother) -> None:
    """What it ran to its end before it left has made room that it did not use itself."""
    other = open_another()
    await other.worker_save(a_worker("worker-9"))
    if store.name == "sqlite":
        await heard.wait_for("")  # there any change of the file is heard
    await heard.forget(store)
    await other.worker_remove("worker-9")
    await heard.wait_for("")


async def test_a_manual_retry_wakes_its_queue(store: Store, heard: Heard) -> None:
    """The job can be claimed at once."""
    run = await fail(store, queue="again")
    await heard.forget(store)
    await store.job_retry_if_ended(run.id, None)
    await heard.wait_for("job:again")


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
async def test_the_end_of_an_ordered_job_wakes_the_queue_of_the_next(store: Store, heard: Heard, end: str) -> None:
    """Whose turn it is now may be in another queue."""
    run = await start(store, order_key="k")
    await insert(store, order_key="k", queue="next")
    assert (await claim(store, queues=["next"])).jobs == []
    await heard.forget(store)
    await (complete(store, run) if end == "complete" else leave(store, run, Leaving(end)))
    await heard.wait_for("job:next")


async def test_what_another_process_does_is_heard_too(store: Store, heard: Heard, open_another: OpenAnother) -> None:
    """PostgreSQL tells what it was; from an SQLite file one only sees that something has changed."""
    await insert(open_another(), queue="theirs")
    await heard.wait_for(arrival(store, "theirs") if store.name == "postgres" else "")


async def test_a_committed_transaction_wakes(store: Store, heard: Heard) -> None:
    """A job that came in through a caller's own transaction is noticed like any other."""
    statement = store.insert_statement([new_job(queue="mine")])
    async with store.transaction() as tx:
        await caller_of(tx).run_async(statement)
    await heard.wait_for(arrival(store, "mine") if store.name == "postgres" else "")


@pytest.mark.case("L23")
async def test_a_transaction_that_was_rolled_back_wakes_nobody(store: Store, heard: Heard) -> None:
    """Nothing has happened."""
    statement = store.insert_statement([new_job(queue="never")])
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await caller_of(tx).run_async(statement)
            raise ZeroDivisionError
    await insert(store, queue="afterwards")
    await heard.wait_for(arrival(store, "afterwards"))
    assert heard.wakes == [arrival(store, "afterwards")]


async def test_log_lines_wake_only_those_who_follow_logs(store: Store, heard: Heard) -> None:
    """Once for each run of a call that was taken and had lines; workers, who do not care, hear nothing of it."""
    follower = Heard()
    stop = await store.listen(follower, logs=True)
    one, other, silent, lost = [await start(store) for _ in range(4)]
    await leave(store, lost, Leaving.FAIL)
    await heard.forget(store)
    await follower.forget(store)
    await heard.forget(store)
    batches = [LogBatch(run.id, run.run_id, [line(run, 1), line(run, 2)]) for run in (one, other, lost)]
    await store.log_append_if_leased([*batches, LogBatch(silent.id, silent.run_id, [])])
    await insert(store, queue="afterwards")
    for listener in (heard, follower):
        await listener.wait_for(arrival(store, "afterwards"))
    assert heard.wakes == [arrival(store, "afterwards")]
    logs = [wake for wake in follower.wakes if wake.startswith("log:")]
    assert sorted(logs) == sorted([f"log:{one.run_id}", f"log:{other.run_id}"])
    await stop()
    await append(store, one, line(one, 3))
    assert [wake for wake in follower.wakes if wake.startswith("log:")] == logs


async def test_the_line_of_the_reaper_wakes_followers(store: Store, clock: ManualClock) -> None:
    """It is the last one of its run."""
    follower = Heard()
    stop = await store.listen(follower, logs=True)
    run = await start(store)
    clock.advance(LEASE + 1)
    await reap(store)
    await follower.wait_for(f"log:{run.run_id}")
    await stop()


async def test_lines_that_another_process_writes_are_heard(store: Store, open_another: OpenAnother) -> None:
    """PostgreSQL names the run; from an SQLite file one only sees that something has changed."""
    follower, run = Heard(), await start(store)
    stop = await store.listen(follower, logs=True)
    await follower.wait_for("")
    follower.wakes.clear()
    await append(open_another(), run, line(run, 1))
    await follower.wait_for(f"log:{run.run_id}" if store.name == "postgres" else "")
    await stop()


async def test_listening_says_whether_hints_come(store: Store) -> None:
    """No before, yes while somebody listens, no after the last one has stopped."""
    assert not store.listening
    stop_one, stop_other = await store.listen(Heard()), await store.listen(Heard())
    assert store.listening
    await stop_one()
    assert store.listening
    await stop_other()
    assert not store.listening


async def test_whoever_stopped_hears_no_more(store: Store, heard: Heard) -> None:
    """The others do, and stopping twice is harmless."""
    stopped = Heard()
    stop = await store.listen(stopped)
    await stop()
    await stop()
    stopped.wakes.clear()
    await insert(store, queue="later")
    await heard.wait_for(arrival(store, "later"))
    assert stopped.wakes == []


async def test_a_lost_connection_is_mended_and_told(postgres_url: str) -> None:
    """PostgreSQL only, SQLite has none to lose: the loss is told, so that workers poll, and it comes back by itself."""
    store, heard = open_store("postgres", postgres_url), Heard()
    try:
        await store.listen(heard)
        await heard.forget(store)
        async with store.transaction() as tx:
            await tx.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast listener' AND datname = current_database()"
            )
        await until(lambda: "" in heard.wakes and store.listening)
        await insert(store, queue="after")
        await heard.wait_for(arrival(store, "after"))
    finally:
        await store.close()
