"""Step 1, accept: a job is there once, whole, or not at all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.clock import ManualClock
from holdfast.errors import JobNotFound, StorageError
from holdfast.ids import new_run_id
from holdfast.job import Hold, State
from holdfast.store.protocol import JobFilter, Leaving, Store
from tests.conformance.conftest import OpenAnother
from tests.conformance.scene import claim, claimed_ids, complete, insert, leave, new_job, start


async def count(store: Store) -> int:
    return sum((await store.job_counts()).values())


@pytest.mark.case("queue-1")
async def test_an_inserted_job_is_queued_with_all_that_was_said_about_it(store: Store, clock: ManualClock) -> None:
    """Every field of a new job can be read back."""
    job = new_job(
        args=msgspec.Raw(b'{"order": 7, "nested": [1, null, "x"]}'),
        priority=4,
        tenant="acme",
        project="shop",
        actor="ana",
        unique_key="u",
        order_key="o",
        timeout_seconds=60.0,
        expected_seconds=30.0,
        backoff=[1.0, 2.0],
        noun="Receipt",
        tags=["a", "b"],
        meta={"k": [1]},
        enqueued_by="checkout",
        trace_context="00-1",
    )
    (answer,) = await store.job_insert_many([job])
    assert (job.id, job.run_id, State.QUEUED, True) == (answer.id, answer.run_id, answer.state, answer.created)
    found = await store.job_get(job.id)
    assert (found.state, found.hold, found.attempt, found.run_no) == (State.QUEUED, None, 0, 0)
    assert found.args == {"order": 7, "nested": [1, None, "x"]}
    assert (found.queue, found.task, found.run_id, found.max_attempts) == (job.queue, job.task, job.run_id, 3)
    assert (found.priority, found.tenant, found.project, found.actor) == (4, "acme", "shop", "ana")
    assert (found.unique_key, found.order_key, found.expected_duration) == ("u", "o", 30.0)
    assert (found.tags, found.meta, found.enqueued_by, found.trace_context) == (["a", "b"], {"k": [1]}, "checkout", "00-1")
    assert found.created_at == found.updated_at == found.run_at == clock.now()


async def test_what_was_not_said_is_empty(store: Store) -> None:
    """A plain job has priority 0, no tags and no one's name on it."""
    found = await store.job_get((await insert(store)).id)
    assert (found.priority, found.tags, found.meta, found.tenant, found.locked_by) == (0, [], {}, None, None)


async def test_inserting_nothing_is_no_error(store: Store) -> None:
    """An empty list gives an empty list."""
    assert await store.job_insert_many([]) == []


async def test_answers_come_in_the_order_of_the_question(store: Store) -> None:
    """Of a thousand jobs in one call each gets its own answer."""
    jobs = [new_job(tenant=f"t{number % 7}") for number in range(1000)]
    assert [job.id for job in jobs] == [answer.id for answer in await store.job_insert_many(jobs)]
    assert await count(store) == 1000


async def test_a_refused_job_takes_the_whole_call_with_it(store: Store) -> None:
    """All or nothing: one bad row, and none of the good ones is there."""
    bad = new_job(queue=None)
    with pytest.raises(StorageError):
        await store.job_insert_many([new_job(), bad, new_job()])
    assert await count(store) == 0


async def test_asking_again_with_the_same_jobs_makes_no_second_one(store: Store) -> None:
    """A caller whose answer was lost on the way may repeat the call, and hears what it would have heard."""
    older = await insert(store, unique_key="taken")
    jobs = [new_job(), new_job(unique_key="mine"), new_job(unique_key="taken")]
    first = await store.job_insert_many(jobs)
    assert first == await store.job_insert_many(jobs)
    assert [answer.created for answer in first] == [True, True, False]
    assert older.id == first[2].id
    assert await count(store) == 3


async def test_asking_again_with_jobs_that_all_have_keys_answers_the_same(store: Store) -> None:
    """The key is met before the id: each job is still answered as the one that was created."""
    jobs = [new_job(unique_key="a"), new_job(unique_key="b")]
    first = await store.job_insert_many(jobs)
    assert first == await store.job_insert_many(jobs)
    assert [answer.created for answer in first] == [True, True]


async def test_texts_are_data_whatever_they_look_like(store: Store) -> None:
    """Quotes, placeholders, comments and distant scripts come back as they went in."""
    hostile = "'; DROP TABLE jobs; -- $1 %s ? :x {0} \\ \" \u2028 😀 שלום\n\t"
    args = msgspec.Raw(msgspec.json.encode({"k": hostile}))
    job = await insert(store, args=args, tenant=hostile, unique_key=hostile, tags=[hostile], meta={hostile: hostile})
    found = await store.job_get(job.id)
    assert (found.args, found.tenant, found.unique_key) == ({"k": hostile}, hostile, hostile)
    assert (found.tags, found.meta) == ([hostile], {hostile: hostile})


# -- unique keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("L22")
async def test_fifty_inserts_at_once_with_one_unique_key_make_one_job(store: Store, open_another: OpenAnother) -> None:
    """Exactly one caller has created it, and all of them get its id and run id."""
    stores = [store, open_another(), open_another()]
    answers = await asyncio.gather(*(insert(stores[n % 3], tenant="acme", unique_key="report") for n in range(50)))
    assert len({(answer.id, answer.run_id) for answer in answers}) == 1
    assert [answer.created for answer in answers].count(True) == 1
    assert await count(store) == 1


async def test_duplicates_inside_one_call_become_one_job(store: Store) -> None:
    """The first of them is created, the others are answered with it."""
    answers = await store.job_insert_many([new_job(unique_key="k"), new_job(), new_job(unique_key="k")])
    assert [answer.created for answer in answers] == [True, True, False]
    assert answers[0].id == answers[2].id
    assert await count(store) == 2


async def test_a_unique_key_counts_within_its_tenant(store: Store) -> None:
    """Two tenants may use the same key."""
    answers = await store.job_insert_many([new_job(unique_key="k", tenant=tenant) for tenant in ("a", "b", None)])
    assert [answer.created for answer in answers] == [True, True, True]


async def test_no_tenant_and_an_empty_one_are_the_same_scope(store: Store) -> None:
    """Within one call and over two, a key without a tenant meets that of the tenant called nothing."""
    both = await store.job_insert_many([new_job(unique_key="k", tenant=None), new_job(unique_key="k", tenant="")])
    later = await insert(store, unique_key="k", tenant="")
    assert [both[0].created, both[1].created, later.created] == [True, False, False]
    assert both[0].id == both[1].id == later.id


async def test_a_unique_key_meets_a_running_job_too(store: Store) -> None:
    """While the job runs its key is taken, and the answer tells its state and run."""
    run = await start(store, unique_key="k")
    answer = await insert(store, unique_key="k")
    assert (answer.id, answer.run_id, answer.state, answer.created) == (run.id, run.run_id, State.RUNNING, False)


async def test_an_answer_tells_the_older_jobs_queue_and_priority(store: Store) -> None:
    """Not those of the call, which made nothing; also within one call."""
    older = await insert(store, unique_key="k", queue="old", priority=3)
    again, fresh = await store.job_insert_many(
        [new_job(unique_key="k", queue="new", priority=9), new_job(queue="new", priority=9)]
    )
    assert (older.created, older.queue, older.priority) == (True, "old", 3)
    assert (again.created, again.id, again.queue, again.priority) == (False, older.id, "old", 3)
    assert (fresh.created, fresh.queue, fresh.priority) == (True, "new", 9)


@pytest.mark.parametrize("end", [State.COMPLETED, State.FAILED, State.CANCELLED])
async def test_a_unique_key_is_free_again_after_the_end(store: Store, end: State) -> None:
    """However the job ended, the next one with its key is a new job."""
    run = await start(store, unique_key="k")
    if end is State.COMPLETED:
        assert await complete(store, run)
    else:
        assert await leave(store, run, Leaving.FAIL if end is State.FAILED else Leaving.CANCEL) is end
    assert (await insert(store, unique_key="k")).created


async def test_a_duplicate_changes_nothing_of_the_job_it_meets(store: Store, clock: ManualClock) -> None:
    """The older job keeps its arguments, priority and times."""
    first = await insert(store, unique_key="k", priority=1)
    before = await store.job_get(first.id)
    clock.advance(60)
    await insert(store, unique_key="k", priority=9, args=msgspec.Raw(b'{"other": true}'))
    assert before == await store.job_get(first.id)


# -- later ---------------------------------------------------------------------------------------------------------------


async def test_a_delay_counts_from_the_databases_now(store: Store, clock: ManualClock) -> None:
    """A delayed job is held until now plus its delay."""
    found = await store.job_get((await insert(store, delay=90.0)).id)
    assert (found.hold, found.run_at) == (Hold.TIME, clock.now() + timedelta(seconds=90))
    assert found.status == "scheduled"


async def test_an_absolute_time_is_kept(store: Store, clock: ManualClock) -> None:
    """`run_at` holds the job until that moment."""
    tomorrow = clock.now() + timedelta(days=1, microseconds=250_000)
    found = await store.job_get((await insert(store, run_at=tomorrow)).id)
    assert (found.hold, found.run_at) == (Hold.TIME, tomorrow)


async def test_a_time_that_has_passed_holds_nothing(store: Store, clock: ManualClock) -> None:
    """A job for yesterday can be claimed at once."""
    job = await insert(store, run_at=clock.now() - timedelta(days=1))
    assert [job.id] == await claimed_ids(store)


# -- taking back ---------------------------------------------------------------------------------------------------------


async def test_what_is_forgotten_was_never_there(store: Store) -> None:
    """The forget statement removes exactly the jobs it names, and answers with them."""
    kept, gone = await insert(store), await insert(store)
    statement = store.forget_statement([gone.id, new_run_id()])
    async with store.transaction() as tx:
        rows = await tx.fetch(statement.sql, statement.parameter)
    assert [gone.id] == [next(iter(row.values())) for row in rows]
    with pytest.raises(JobNotFound):
        await store.job_get(gone.id)
    assert [kept.id] == [job.id for job in await store.job_list(JobFilter(), cursor=None, limit=10)]
    assert [kept.id] == [job.id for job in (await claim(store, 10)).jobs]


async def test_a_time_that_has_passed_means_now(store: Store, clock: ManualClock) -> None:
    """Waits are counted from when the job arrived, and it does not go before jobs that have waited longer."""
    first = await insert(store)
    clock.advance(10)
    job = new_job(run_at=datetime(1, 1, 1, tzinfo=UTC))
    await store.job_insert_many([job])
    assert (await store.job_get(job.id)).run_at == clock.now()
    clock.advance(5)
    claimed = (await claim(store, 2)).jobs
    assert [(run.id, run.waited_seconds) for run in claimed] == [(first.id, 15.0), (job.id, 5.0)]
