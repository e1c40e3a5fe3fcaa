"""The way round the tenants: everybody's turn comes, whatever the others have waiting, and at a bounded cost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.clock import ManualClock
from holdfast.store.protocol import Leaving, Plan, Store
from tests.conformance.scene import (
    QUEUE,
    TASK,
    by_hand,
    claim,
    claimed_ids,
    claimed_tenants,
    complete,
    insert,
    insert_some,
    leave,
    new_job,
    set_limit,
    set_plan,
    table,
)


async def fill(store: Store, jobs: int, *tenants: str, limit: int | None = 100, **fields: Any) -> None:
    """Each of these tenants has this many jobs waiting, and may run all of them."""
    if limit is not None:
        await set_limit(store, limit, *tenants)
    await store.job_insert_many([new_job(tenant=tenant, **fields) for tenant in tenants for _ in range(jobs)])


def names(count: int) -> list[str]:
    return [f"t{n:05}" for n in range(count)]


async def saturate(store: Store, count: int, but: str | None = None) -> None:
    """So many tenants of the free plan that run one job and have another waiting; one of them runs none."""
    await store.job_insert_many([new_job(tenant=name) for name in names(count) for _ in range(2)])
    await by_hand(
        store,
        f"UPDATE {table(store, 'jobs')} SET state = 'running', locked_by = 'elsewhere'"
        " WHERE seq % 2 = 1 AND tenant <> $1 RETURNING seq",
        but or "",
    )
    if but:
        await by_hand(store, f"DELETE FROM {table(store, 'jobs')} WHERE seq % 2 = 1 AND tenant = $1 RETURNING seq", but)
    await by_hand(store, "ANALYZE")


# -- shares --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_each_tenant_gets_one_before_any_gets_a_second(store: Store, limit: int) -> None:
    """With claims smaller than the number of tenants, also over several claims, from wherever the last one ended."""
    tenants = names(6)
    await fill(store, 5, *tenants)
    cursor, got = None, []
    for _ in range(12 // limit):
        found = await claim(store, limit, cursors={QUEUE: cursor})
        got += [job.tenant for job in found.jobs]
        cursor = found.turns[0].cursor
    assert got == tenants + tenants


async def test_few_tenants_share_a_claim_equally(store: Store) -> None:
    """However long the one's backlog is and however short the other's."""
    await fill(store, 500, "big")
    await fill(store, 50, "small", "tiny")
    assert Counter(await claimed_tenants(store, 30)) == {"big": 10, "small": 10, "tiny": 10}


async def test_what_one_leaves_goes_to_those_who_have_more(store: Store) -> None:
    """A claim is filled as long as anybody may run more."""
    await fill(store, 100, "big")
    await fill(store, 2, "small")
    await fill(store, 50, "limited", limit=1)
    assert Counter(await claimed_tenants(store, 30)) == {"big": 27, "small": 2, "limited": 1}


async def test_a_weight_gives_so_many_jobs_at_each_turn(store: Store) -> None:
    """Where tenants compete; it is no limit, what others leave is taken."""
    await store.plan_set(Plan("heavy", max_running=100, queue_depth=1000, weight=3), by=None)
    await store.plan_set(Plan("light", max_running=100, queue_depth=1000), by=None)
    await set_plan(store, "heavy", "a")
    await set_plan(store, "light", "b", "c")
    await fill(store, 60, "a", "b", "c", limit=None)
    assert Counter(await claimed_tenants(store, 5)) == {"a": 5}, "its turn is six"
    found = await claim(store, 5, cursors={QUEUE: "a"})
    assert Counter(job.tenant for job in found.jobs) == {"b": 2, "c": 2, "a": 1}


async def test_jobs_without_a_tenant_take_their_turn_as_one_tenant(store: Store) -> None:
    """Beside the others, neither before nor behind them."""
    await insert_some(store, 50)
    await fill(store, 50, "a", "b")
    assert Counter(await claimed_tenants(store, 30)) == {None: 10, "a": 10, "b": 10}


async def test_within_a_tenant_priority_then_age_decide(store: Store, clock: ManualClock) -> None:
    """Another tenant's priorities play no part."""
    await set_limit(store, 100, "a", "b")
    old = await insert(store, tenant="a")
    await insert_some(store, 3, tenant="b", priority=100)
    clock.advance(1)
    young = await insert(store, tenant="a")
    urgent = await insert(store, tenant="a", priority=5)
    found = [await claim(store, 2) for _ in range(3)]
    assert [urgent.id, old.id, young.id] == [job.id for got in found for job in got.jobs if job.tenant == "a"]


@pytest.mark.case("C32")
@pytest.mark.parametrize("urgent", ["a", "z"])
async def test_a_flood_of_urgent_jobs_does_not_hold_up_another_tenants_single_one(store: Store, urgent: str) -> None:
    """Whichever comes first by name, the one is in the first claim."""
    await set_plan(store, "pro", urgent)
    await insert_some(store, 20_000, tenant=urgent, priority=10)
    single = await insert(store, tenant="m")
    found = await claim(store, 10)
    assert single.id in [job.id for job in found.jobs]
    assert len(found.jobs) == 10


async def test_tasks_that_the_worker_does_not_know_do_not_block_their_tenant(store: Store) -> None:
    """Nor do they count towards its share or its limit."""
    await insert_some(store, 300, tenant="a", task="not_mine", priority=9)
    known = await insert(store, tenant="a")
    other = await insert(store, tenant="b")
    assert [known.id, other.id] == await claimed_ids(store, 5)


@pytest.mark.case("L21")
async def test_ordering_keys_hold_within_a_tenant_and_leave_its_other_jobs_alone(store: Store) -> None:
    """A claim that meets those behind a running one goes on to what may run, and keys of other tenants are others."""
    await fill(store, 4, "a", "b", order_key="k")
    free = await insert_some(store, 2, tenant="a")
    found = (await claim(store, 10)).jobs
    assert Counter((job.tenant, job.order_key) for job in found) == {("a", "k"): 1, ("b", "k"): 1, ("a", None): 2}
    assert {job.id for job in found} > set(free)
    for job in found:
        await complete(store, job)
    assert Counter((job.tenant, job.order_key) for job in (await claim(store, 10)).jobs) == {("a", "k"): 1, ("b", "k"): 1}


async def test_ordered_jobs_that_wait_do_not_use_up_a_limit(store: Store) -> None:
    """A tenant with room for three runs three, though most of what comes first waits for its turn."""
    await set_plan(store, "starter", "a")
    await insert_some(store, 20, tenant="a", order_key="k")
    await insert_some(store, 5, tenant="a")
    assert Counter(job.order_key for job in (await claim(store, 10)).jobs) == {"k": 1, None: 2}


# -- cursor, hops and hints ----------------------------------------------------------------------------------------------


async def test_a_claim_looks_at_no_more_tenants_than_its_hops(store: Store) -> None:
    """And says where it came to, so that the next one goes on from there."""
    await fill(store, 1, *names(10), limit=None)
    first = await claim(store, 100, hops=4)
    turn = first.turns[0]
    assert [job.tenant for job in first.jobs] == names(10)[:4]
    assert (turn.cursor, turn.around, turn.wrapped, turn.busy) == ("t00003", False, False, False)
    second = await claim(store, 100, hops=4, cursors={QUEUE: turn.cursor})
    assert [job.tenant for job in second.jobs] == names(10)[4:8]


@pytest.mark.parametrize("start", [None, "t00003", "t00009", "between"])
@pytest.mark.parametrize("hops", [1, 3, 9, 10, 11, 25])
async def test_no_tenant_is_left_out_on_the_way_round(store: Store, hops: int, start: str | None) -> None:
    """All are seen by the time the end has been passed as often as it takes, and one call is *around* only if it saw all."""
    await fill(store, 2, *names(10), limit=None)
    cursor, seen, ends = start, [], 0
    for calls in range(1, 30):
        before = len(seen)
        found = await claim(store, 100, hops=hops, cursors={QUEUE: cursor})
        seen += [job.tenant for job in found.jobs]
        turn = found.turns[0]
        cursor, ends = turn.cursor, ends + turn.wrapped
        if turn.around:
            assert calls > 1 or len(seen) - before == 10
            break
        if ends == (1 if start is None else 2):
            break
    assert sorted(seen) == names(10), "each had room for one"
    assert calls <= 1 + 2 * (10 // hops + 1)


async def test_a_full_claim_is_not_all_round(store: Store) -> None:
    """There may be more where it stopped."""
    await fill(store, 3, "a", "b")
    turn = (await claim(store, 4)).turns[0]
    assert not turn.around and not turn.wrapped
    rest = await claim(store, 4, cursors={QUEUE: turn.cursor})
    assert len(rest.jobs) == 2 and rest.turns[0].around


async def test_what_others_left_does_not_turn_the_way_back(store: Store) -> None:
    """All on the way have had their share; the next claim goes on with those behind, not with the second in the row again."""
    await fill(store, 50, "t00000")
    await fill(store, 1, *names(10)[1:], limit=None)
    first = await claim(store, 6, hops=4)
    assert Counter(job.tenant for job in first.jobs) == {"t00000": 3, "t00001": 1, "t00002": 1, "t00003": 1}
    assert first.turns[0].cursor == "t00003"


async def test_a_hint_is_looked_at_beside_the_way_and_does_not_move_it(store: Store) -> None:
    """Otherwise those between the cursor and the hint would lose their turn."""
    await fill(store, 1, *names(10), limit=None)
    found = await claim(store, 3, hops=2, cursors={QUEUE: "t00001"}, hints=["t00008"])
    assert [job.tenant for job in found.jobs] == ["t00002", "t00003", "t00008"]
    assert found.turns[0].cursor == "t00003"
    only = await claim(store, 1, hops=0, cursors={QUEUE: "t00003"}, hints=["t00009", "nobody"])
    assert [job.tenant for job in only.jobs] == ["t00009"]
    assert (only.turns[0].cursor, only.turns[0].around) == ("t00003", False)


async def test_a_claim_says_whether_limits_or_pauses_held_work_back(store: Store) -> None:
    """Then a place may free elsewhere; where nobody is held there is nothing to come back for."""
    await fill(store, 1, "free", limit=None)
    assert not (await claim(store, 10)).turns[0].held
    await fill(store, 1, "free", limit=None)
    assert (await claim(store, 10)).turns[0].held
    assert not (await claim(store, 10, hops=0, hints=["other"])).turns[0].held
    await store.tenant_pause("other", paused=True, by=None)
    assert (await claim(store, 10, hops=0, hints=["other"])).turns[0].held


async def test_each_queue_has_its_own_cursor(store: Store) -> None:
    """And its own turn in the answer, in the order asked."""
    for queue in ("x", "y"):
        await fill(store, 1, "a", "b", "c", queue=queue)
    found = await claim(store, 10, queues=["x", "y"], hops=1, cursors={"x": "a", "y": "b"})
    assert [(job.queue, job.tenant) for job in found.jobs] == [("x", "b"), ("y", "c")]
    assert [(turn.queue, turn.cursor) for turn in found.turns] == [("x", "b"), ("y", "c")]


@pytest.mark.case("C35")
async def test_the_one_tenant_with_room_among_thousands_is_found_in_bounded_steps(store: Store) -> None:
    """Each claim looks at so many tenants and no more; the one is reached as soon as those before it are passed."""
    await saturate(store, 3000, but="t02900")
    cursor: str | None = None
    found = []
    for _ in range(6):
        answer = await claim(store, 10, hops=512, cursors={QUEUE: cursor})
        found.append([job.tenant for job in answer.jobs])
        cursor = answer.turns[0].cursor
    assert found == [[], [], [], [], [], ["t02900"]]


@pytest.mark.case("C35")
async def test_a_hint_finds_the_one_tenant_with_room_at_once(store: Store) -> None:
    """Without looking at any of the thousands that are full."""
    await saturate(store, 3000, but="t02900")
    found = await claim(store, 10, hops=0, hints=["t02900"])
    assert [job.tenant for job in found.jobs] == ["t02900"]


async def test_what_falls_due_beside_the_way_is_not_forgotten(store: Store, clock: ManualClock) -> None:
    """A claim that lifts a job of a tenant that it does not come to says that it is worth asking again at once."""
    await saturate(store, 200)
    late = await insert(store, tenant="z", delay=10.0)
    clock.advance(10)
    found = await claim(store, 10, hops=0, hints=["t00000"])
    assert (found.jobs, found.next_due_seconds) == ([], 0.0)
    assert [late.id] == await claimed_ids(store, 10, hops=512)


async def test_a_job_that_goes_back_takes_its_place_in_its_tenants_line(store: Store) -> None:
    """Not in front of the other tenants."""
    await fill(store, 3, "a", "b")
    first = await claim(store, 1)
    await leave(store, first.jobs[0], Leaving.RELEASE)
    second = await claim(store, 1, cursors={QUEUE: first.turns[0].cursor})
    assert [first.jobs[0].tenant, second.jobs[0].tenant] == ["a", "b"]


async def test_names_in_any_script_have_their_turn(store: Store) -> None:
    """Whatever the database's order of names is, the way round closes."""
    tenants = ["Zürich", "acme", "ACME", "élan", "日本", "🦔", " space", "a-b", "ab", "0"]
    await fill(store, 1, *tenants, limit=None)
    cursor, seen = None, []
    for _ in range(10):
        found = await claim(store, 1, hops=1, cursors={QUEUE: cursor}, tasks=[TASK])
        seen += [job.tenant for job in found.jobs]
        cursor = found.turns[0].cursor
    assert sorted(map(str, seen)) == sorted(tenants)
