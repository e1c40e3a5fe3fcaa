"""Ordering keys: one at a time, in the order of arrival, and nobody is left waiting for ever."""

from __future__ import annotations

import pytest

from holdfast.clock import ManualClock
from holdfast.job import Hold, State
from holdfast.store.protocol import Claimed, Completion, Leaving, Store
from tests.conformance.scene import (
    LEASE,
    by_hand,
    claim,
    claimed_ids,
    complete,
    insert,
    insert_some,
    leave,
    new_job,
    reap,
    set_plan,
    start,
)


async def claim_run(store: Store) -> Claimed:
    (run,) = (await claim(store)).jobs
    return run


@pytest.mark.case("L21")
async def test_jobs_of_one_key_run_one_at_a_time_in_order(store: Store) -> None:
    """However many are asked for, one is handed out, and the next only after its end."""
    ids = await insert_some(store, 4, order_key="account-1")
    for expected in ids:
        runs = (await claim(store, 10)).jobs
        assert [expected] == [run.id for run in runs]
        assert (await claim(store, 10)).jobs == []
        assert await complete(store, runs[0])


async def test_priority_does_not_overtake_within_a_key(store: Store) -> None:
    """A more urgent job of the same key waits for the older one all the same."""
    first = await insert(store, order_key="k")
    urgent = await insert(store, order_key="k", priority=9)
    run = await claim_run(store)
    assert run.id == first.id
    await complete(store, run)
    assert [urgent.id] == await claimed_ids(store, 10)


async def test_a_key_spans_queues(store: Store) -> None:
    """The order holds also between queues, whichever the worker serves first."""
    first = await insert(store, order_key="k", queue="slow")
    second = await insert(store, order_key="k", queue="fast")
    (run,) = (await claim(store, 10, queues=["fast", "slow"])).jobs
    assert run.id == first.id
    await complete(store, run)
    assert [second.id] == await claimed_ids(store, 10, queues=["fast", "slow"])


async def test_keys_and_tenants_do_not_disturb_each_other(store: Store) -> None:
    """Different keys run side by side, and so does one key of different tenants."""
    await set_plan(store, "pro", "t", "u")
    ids = [(await insert(store, order_key=key, tenant=tenant)).id for key in ("a", "b") for tenant in ("t", "u", None)]
    assert sorted(ids) == sorted(await claimed_ids(store, 10))


async def test_a_waiting_job_says_that_it_waits_for_its_turn(store: Store) -> None:
    """Once a claim has met it, the job shows the hold `order`, which its predecessor's end lifts."""
    run = await start(store, order_key="k")
    waiting = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    assert (await store.job_get(waiting.id)).hold is Hold.ORDER
    await complete(store, run)
    assert (await store.job_get(waiting.id)).hold is None


async def test_a_claim_that_only_met_waiting_jobs_knows_no_due_time(store: Store) -> None:
    """Jobs that wait for their turn fall due at no time that could be told."""
    await start(store, order_key="k")
    await insert_some(store, 3, order_key="k")
    found = await claim(store, 10)
    assert (found.jobs, found.next_due_seconds) == ([], None)


@pytest.mark.case("L21")
async def test_a_retrying_job_blocks_those_behind_it(store: Store, clock: ManualClock) -> None:
    """While the first waits for its next attempt nobody overtakes it."""
    first = await start(store, order_key="k")
    second = await insert(store, order_key="k")
    await leave(store, first, Leaving.RETRY, delay=60.0)
    assert (await claim(store, 10)).jobs == []
    clock.advance(60)
    again = await claim_run(store)
    assert again.id == first.id
    await complete(store, again)
    assert [second.id] == await claimed_ids(store, 10)


async def test_a_scheduled_job_blocks_those_behind_it(store: Store, clock: ManualClock) -> None:
    """Order is that of arrival, also where the first one is meant for later."""
    first = await insert(store, order_key="k", delay=60.0)
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    clock.advance(60)
    run = await claim_run(store)
    assert run.id == first.id
    await complete(store, run)
    assert [second.id] == await claimed_ids(store, 10)


@pytest.mark.case("L21")
@pytest.mark.parametrize("blocks", [False, True], ids=["skip", "block"])
async def test_a_failed_job_is_skipped_or_blocks_as_it_said(store: Store, blocks: bool) -> None:
    """With `skip` the next one runs; with `block` it waits until the failed one is retried and has ended well."""
    first = await start(store, order_key="k", order_blocks=blocks)
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    await leave(store, first, Leaving.FAIL)
    if not blocks:
        assert [second.id] == await claimed_ids(store, 10)
        return
    assert (await claim(store, 10)).jobs == []
    await store.job_retry_if_ended(first.id, None)
    again = await claim_run(store)
    assert again.id == first.id
    await complete(store, again)
    assert [second.id] == await claimed_ids(store, 10)


async def test_cancelling_the_first_lets_the_next_go(store: Store) -> None:
    """A queued predecessor that is cancelled is no reason to wait."""
    first = await insert(store, order_key="k", delay=1000.0)
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    await store.job_cancel(first.id, "ana")
    assert [second.id] == await claimed_ids(store, 10)


async def test_cancelling_one_in_the_middle_keeps_the_order(store: Store) -> None:
    """The one behind it neither overtakes the running one nor is forgotten."""
    run = await start(store, order_key="k")
    middle, last = await insert(store, order_key="k"), await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    await store.job_cancel(middle.id, "ana")
    assert (await claim(store, 10)).jobs == []
    await complete(store, run)
    assert [last.id] == await claimed_ids(store, 10)


async def test_a_cancelled_run_lets_the_next_go(store: Store) -> None:
    """A run that ends because somebody asked for it frees its key."""
    run = await start(store, order_key="k")
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    await store.job_cancel(run.id, "ana")
    assert await leave(store, run, Leaving.RETRY) is State.CANCELLED
    assert [second.id] == await claimed_ids(store, 10)


@pytest.mark.parametrize("attempts", [1, 2], ids=["used up", "one left"])
async def test_a_reaped_job_follows_the_same_rules(store: Store, clock: ManualClock, attempts: int) -> None:
    """Given up, it is skipped; requeued, it goes first again."""
    first = await start(store, order_key="k", max_attempts=attempts, backoff=[10.0])
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    clock.advance(LEASE + 1)
    assert [first.id] == [job.id for job in await reap(store)]
    if attempts == 1:
        assert [second.id] == await claimed_ids(store, 10)
        return
    assert (await claim(store, 10)).jobs == []
    clock.advance(10)
    assert [first.id] == await claimed_ids(store, 10)


async def test_a_completion_in_the_callers_transaction_lets_the_next_go(store: Store) -> None:
    """The statement for the caller's own connection frees the key when, and only when, that transaction commits."""
    run = await start(store, order_key="k")
    second = await insert(store, order_key="k")
    assert (await claim(store, 10)).jobs == []
    statement = store.complete_statement(Completion(run.id, run.run_id, "null", ordered=True))
    with pytest.raises(ZeroDivisionError):
        async with store.transaction() as tx:
            await tx.fetch(statement.sql, statement.parameter)
            raise ZeroDivisionError
    assert (await claim(store, 10)).jobs == []
    async with store.transaction() as tx:
        await tx.fetch(statement.sql, statement.parameter)
    assert [second.id] == await claimed_ids(store, 10)


async def test_an_older_job_that_is_retried_while_a_newer_one_runs_goes_next(store: Store) -> None:
    """Never two at once: it waits for the newer run, and then goes before those that came later."""
    old = await start(store, order_key="k")
    newer, newest = await insert(store, order_key="k"), await insert(store, order_key="k")
    await leave(store, old, Leaving.FAIL)
    run = await claim_run(store)
    assert run.id == newer.id
    await store.job_retry_if_ended(old.id, None)
    assert (await claim(store, 10)).jobs == []
    await complete(store, run)
    again = await claim_run(store)
    assert again.id == old.id
    assert (await claim(store, 10)).jobs == []
    await complete(store, again)
    assert [newest.id] == await claimed_ids(store, 10)


async def test_a_hundred_waiting_jobs_do_not_hide_the_one_behind_them(store: Store) -> None:
    """A claim of one goes past everything that waits for its turn."""
    await start(store, order_key="k")
    await insert_some(store, 100, order_key="k", priority=5)
    free = await insert(store)
    assert [free.id] == await claimed_ids(store, 1)


async def test_a_batch_fills_up_although_many_wait(store: Store) -> None:
    """Of ten keys with twenty jobs each a claim of ten gets the head of every one."""
    heads = []
    for key in range(10):
        heads.append((await insert_some(store, 20, order_key=f"k{key}"))[0])
    assert sorted(heads) == sorted(await claimed_ids(store, 10))


# -- healing -------------------------------------------------------------------------------------------------------------


async def test_healing_lets_go_a_head_that_nobody_else_would(store: Store) -> None:
    """A job parked by accident, with nothing before it, is let go and counted; those behind it stay."""
    ids = await insert_some(store, 2, order_key="k")
    await by_hand(store, "UPDATE {jobs} SET hold = 'order'")
    assert (await claim(store, 10)).jobs == []
    assert await store.order_heal() == 1
    assert [ids[0]] == await claimed_ids(store, 10)


async def test_healing_finds_nothing_where_all_is_well(store: Store) -> None:
    """A job that waits behind a running, retrying or blocking one is left to wait."""
    running = await start(store, order_key="running")
    retrying = await start(store, order_key="retrying")
    await leave(store, retrying, Leaving.RETRY, delay=60.0)
    blocking = await start(store, order_key="blocking", order_blocks=True)
    await leave(store, blocking, Leaving.FAIL)
    replayed = await start(store, order_key="replayed")
    await leave(store, replayed, Leaving.FAIL)
    await start(store, order_key="replayed")
    await store.job_retry_if_ended(replayed.id, None)
    await store.job_insert_many([new_job(order_key=run.order_key) for run in (running, retrying, blocking)])
    assert (await claim(store, 10)).jobs == []
    assert await store.order_heal() == 0
    assert (await claim(store, 10)).jobs == []
