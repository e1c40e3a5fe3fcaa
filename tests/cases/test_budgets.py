"""What a tenant may spend in a month: counted whatever becomes of a run, and never overshot by more than one run's share."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

from holdfast import Abort, Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import BudgetExhausted, ConfigError, InvalidOption
from holdfast.limits import gates
from tests.cases.spending import calls_model, events, turn_to
from tests.cases.steps import drain, ends, working
from tests.cases.test_idempotency import apps
from tests.support.waiting import until

RUNS = 20


# -- spending ----------------------------------------------------------------------------------------------------------


async def test_what_a_run_spends_counts_for_its_tenant_kind_and_month(hf: Holdfast) -> None:
    """Fractions add up, kinds and tenants are apart, and each run says what it spent."""

    @hf.task
    async def work() -> None:
        run = current()
        run.spend(0.1, "ai")
        run.spend(0.2, "ai")
        await run.spend(7, "maps")

    for tenant in ("acme", "acme", "beta"):
        await work.options(tenant=tenant).enqueue()
    await drain(hf)
    assert [(await hf.budgets.get("acme", kind)).spent for kind in ("ai", "maps")] == [0.6, 14]
    assert (await hf.budgets.get("beta", "ai")).spent == 0.3
    assert [run["spent"] for run in await hf.budgets.runs("acme", "ai")] == [0.3, 0.3]


async def test_a_plain_function_spends_too(hf: Holdfast) -> None:
    """In a thread the money is on record when spend returns."""

    @hf.task
    def work() -> float:
        current().spend(5, "ai")
        return hf.budgets.get_sync("acme", "ai").spent

    job = await work.options(tenant="acme").enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).output == 5


async def test_money_is_on_record_even_if_the_run_fails(hf: Holdfast) -> None:
    """Spent is spent: also without an await, and whatever is raised in the next line."""

    @hf.task
    async def work() -> None:
        current().spend(5, "ai")
        raise Abort("no use")

    job = await work.options(tenant="acme").enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).state is State.FAILED
    budget = await hf.budgets.get("acme", "ai")
    assert (budget.spent, budget.late) == (5, 0)


async def test_money_of_a_run_that_lost_its_job_counts_and_is_marked(hf_at: Holdfast, clock: ManualClock) -> None:
    """The lease expired and the job was taken back; what the old run spends after that was spent all the same."""
    go_on = asyncio.Event()
    began = asyncio.Event()

    claimed = None

    @hf_at.task
    async def work() -> None:
        nonlocal claimed
        claimed = current()
        began.set()
        await go_on.wait()

    await work.options(tenant="acme").enqueue()
    async with working(hf_at, reap=False):
        await asyncio.wait_for(began.wait(), 60)
        assert claimed is not None
        await claimed.spend(3, "ai")
        clock.advance(3600)
        assert (await hf_at.reap()).requeued == [claimed.job_id]
        await claimed.spend(4, "ai")
        go_on.set()
    budget = await hf_at.budgets.get("acme", "ai")
    assert (budget.spent, budget.late) == (7, 4)


@pytest.mark.parametrize(("cents", "kind"), [(-1, "ai"), (float("nan"), "ai"), ("3", "ai"), (3, ""), (3, "x" * 101)])
async def test_spending_nonsense_is_refused(hf: Holdfast, cents: Any, kind: str) -> None:
    """The task is told at once, and nothing is written."""

    @hf.task
    async def work() -> None:
        try:
            current().spend(cents, kind)
        except InvalidOption:
            raise Abort("refused", code="refused") from None

    job = await work.options(tenant="acme").enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).error_code == "refused"
    assert await hf.budgets.list() == []


# -- the cap -----------------------------------------------------------------------------------------------------------


@pytest.mark.case("P10")
async def test_a_used_up_budget_refuses_jobs_and_opens_again_next_month(hf_at: Holdfast, clock: ManualClock) -> None:
    """At the door with a typed error; a job that was let in before fails with the same code and keeps its attempts."""
    turn_to(clock, "2026-11-20T12:00+00:00")
    classify = calls_model(hf_at, budget_max=10)
    await hf_at.budgets.set("acme", "ai", cents=20)
    jobs = [await classify.options(tenant="acme").enqueue() for _ in range(3)]
    await drain(hf_at, concurrency=1)
    found = [await hf_at.get(job.id) for job in jobs]
    assert [job.state for job in found] == [State.COMPLETED, State.COMPLETED, State.FAILED]
    assert (found[2].error_code, found[2].attempt) == ("budget_exhausted", 0)
    with pytest.raises(BudgetExhausted, match="used up") as refused:
        await classify.options(tenant="acme").enqueue()
    assert refused.value.code == "budget_exhausted"
    assert round(refused.value.retry_after or 0) == 10.5 * 86400
    await classify.options(tenant="beta").enqueue()
    turn_to(clock, "2026-12-01T00:00:01+00:00")
    again = await classify.options(tenant="acme").enqueue()
    await drain(hf_at)
    assert (await hf_at.get(again.id)).state is State.COMPLETED


@pytest.mark.case("P10")
async def test_a_held_job_waits_for_the_next_month_without_costing_attempts(hf_at: Holdfast, clock: ManualClock) -> None:
    """It is accepted, says what it waits for, and runs when the month has turned."""
    turn_to(clock, "2026-11-20T12:00+00:00")
    classify = calls_model(hf_at, on_budget="hold")
    await hf_at.budgets.set("acme", "ai", cents=0)
    job = await classify.options(tenant="acme").enqueue()
    await drain(hf_at)
    held = await hf_at.get(job.id)
    assert (held.state, held.attempt) == (State.QUEUED, 0)
    why = await hf_at.why(job.id)
    assert why.code == "budget_exhausted"
    assert "The budget ai of tenant acme is used up until 2026-12-01 00:00 UTC" in why.sentence
    await hf_at.budgets.set("acme", "ai", cents=50)
    turn_to(clock, "2026-12-01T00:02+00:00")
    await drain(hf_at)
    assert (await hf_at.get(job.id)).state is State.COMPLETED


async def test_raising_the_cap_lets_held_jobs_go(hf: Holdfast) -> None:
    """A worker that is there hears of it; nobody waits for the month to turn."""
    classify = calls_model(hf, on_budget="hold")
    await hf.budgets.set("acme", "ai", cents=0)
    async with working(hf):
        job = await classify.options(tenant="acme").enqueue()

        async def held() -> bool:
            return (await hf.why(job.id)).code == "budget_exhausted"

        await until(held, 60)
        await hf.budgets.override("acme", "ai", cents=30, reason="end of quarter", by="ana")
        assert (await ends(hf, job)).state is State.COMPLETED


async def test_parallel_runs_overshoot_by_less_than_one_run_may_spend(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 jobs on four workers: of 95 cents, ten runs of at most 10 cents are let in at once; the others wait, then fail."""
    monkeypatch.setattr(gates, "RESERVED_SECONDS", 0.3)
    inside, all_in = [0], asyncio.Event()

    async def classify() -> None:
        inside[0] += 1
        if inside[0] == 10:
            all_in.set()
        await all_in.wait()
        await current().spend(10, "ai")

    async with apps(database_url, 4) as hfs:
        tasks = [hf.task(budget="ai", budget_max=10)(classify) for hf in hfs]
        await hfs[0].tenants.set("acme", limit=100)
        await hfs[0].budgets.set("acme", "ai", cents=95)
        jobs = await hfs[0].enqueue_many([tasks[0].options(tenant="acme").job() for _ in range(RUNS)])
        async with (
            working(hfs[0], concurrency=RUNS), working(hfs[1], concurrency=RUNS),
            working(hfs[2], concurrency=RUNS), working(hfs[3], concurrency=RUNS),
        ):  # fmt: skip
            ended = await asyncio.gather(*(ends(hfs[0], job) for job in jobs))
        spent = (await hfs[0].budgets.get("acme", "ai")).spent
    assert sum(job.state is State.COMPLETED for job in ended) == inside[0] == 10
    assert {job.error_code for job in ended if job.state is State.FAILED} == {"budget_exhausted"}
    assert spent == 100


async def test_reservations_hold_runs_back_until_others_have_ended(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one run may spend all that is left the next one waits a moment, costs no attempt, and says why."""
    monkeypatch.setattr(gates, "RESERVED_SECONDS", 0.3)
    began, go_on = asyncio.Event(), asyncio.Event()

    @hf.task(budget="ai", budget_max=100)
    async def slow() -> None:
        began.set()
        await go_on.wait()

    await hf.tenants.set("acme", limit=10)
    await hf.budgets.set("acme", "ai", cents=100)
    first = await slow.options(tenant="acme").enqueue()
    async with working(hf, concurrency=4):
        await asyncio.wait_for(began.wait(), 60)
        second = await slow.options(tenant="acme").enqueue()

        async def waits() -> bool:
            return (await hf.why(second.id)).code == "budget_reserved"

        await until(waits, 60)
        assert (await hf.budgets.get("acme", "ai")).reserved == 100
        go_on.set()
        assert [(await ends(hf, job)).state for job in (first, second)] == [State.COMPLETED, State.COMPLETED]
    assert (await hf.budgets.get("acme", "ai")).reserved == 0


async def test_a_dead_run_keeps_no_reservation(hf_at: Holdfast, clock: ManualClock) -> None:
    """Its worker is gone without a word: with the lease the reservation ends, and the job itself runs again."""
    work = calls_model(hf_at, budget_max=100)
    await hf_at.budgets.set("acme", "ai", cents=100)
    job = await work.options(tenant="acme").enqueue()
    claim = await hf_at.store.job_claim(worker="dead", machine=None, queues=["default"], tasks=["classify"], limit=1)
    assert await hf_at.budgets.reserve(claim.jobs[0], "ai", 100) is None
    assert (await hf_at.budgets.get("acme", "ai")).reserved == 100
    clock.advance(3600)
    await hf_at.reap()
    assert (await hf_at.budgets.get("acme", "ai")).reserved == 0
    clock.advance(3600)
    await drain(hf_at)
    assert (await hf_at.get(job.id)).state is State.COMPLETED


# -- events, caps, overrides -------------------------------------------------------------------------------------------


async def test_a_warning_at_80_percent_and_an_event_when_it_is_used_up_each_once_a_month(
    hf_at: Holdfast, clock: ManualClock
) -> None:
    """However often is spent after that; the next month warns anew."""
    turn_to(clock, "2026-11-20T12:00+00:00")

    @hf_at.task
    async def work(cents: float) -> None:
        await current().spend(cents, "ai")

    async def spend(cents: float) -> list[str]:
        await work.options(tenant="acme").enqueue(cents)
        await drain(hf_at)
        return await events(hf_at)

    await hf_at.budgets.set("acme", "ai", cents=100, by="ana")
    assert await spend(79.9) == ["budget.changed"]
    assert await spend(0.1) == ["budget.changed", "budget.warning"]
    assert await spend(5) == ["budget.changed", "budget.warning"]
    assert await spend(15) == ["budget.changed", "budget.warning", "budget.exhausted"]
    assert await spend(5) == ["budget.changed", "budget.warning", "budget.exhausted"]
    turn_to(clock, "2026-12-02T12:00+00:00")
    assert (await spend(85))[3:] == ["budget.warning"]


async def test_an_override_holds_for_one_month_and_is_on_record(hf_at: Holdfast, clock: ManualClock) -> None:
    """Who, how much and why; the next month has the old cap."""
    turn_to(clock, "2026-11-20T12:00+00:00")
    await hf_at.budgets.set("acme", "ai", cents=100)
    raised = await hf_at.budgets.override("acme", "ai", cents=50, reason="launch", by="ana")
    assert (raised.cents, raised.extra) == (150, 50)
    (event,) = [event for event in await hf_at.events(tenant="acme") if event.type == "budget.overridden"]
    assert event.actor == "ana"
    assert event.data == {"kind": "ai", "month": "2026-11", "cents": 50, "reason": "launch"}
    turn_to(clock, "2026-12-01T00:00+00:00")
    assert (await hf_at.budgets.get("acme", "ai")).cents == 100
    with pytest.raises(InvalidOption, match="no cap"):
        await hf_at.budgets.override("beta", "ai", cents=1)


async def test_a_plan_gives_its_tenants_a_cap_unless_they_have_their_own(hf: Holdfast) -> None:
    """Taking a tenant's own cap away brings the plan's back."""
    await hf.tenants.set("acme", plan="pro")
    await hf.budgets.set_plan("pro", "ai", cents=500)
    assert [(b.tenant, b.cents, b.by_plan) for b in await hf.budgets.list()] == [("acme", 500, True)]
    assert (await hf.budgets.set("acme", "ai", cents=7)).by_plan is False
    assert (await hf.budgets.set("acme", "ai", cents=None)).cents == 500
    assert (await hf.budgets.get("beta", "ai")).status == "no_cap"
    assert await hf.budgets.plans() == {"pro": {"ai": 500}}


async def test_jobs_without_a_tenant_have_a_budget_too(hf: Holdfast) -> None:
    """For programs that serve one organization alone."""
    classify = calls_model(hf, budget_max=10)
    await hf.budgets.set(None, "ai", cents=10)
    await classify.enqueue()
    await drain(hf)
    with pytest.raises(BudgetExhausted, match="jobs without a tenant"):
        await classify.enqueue()


async def test_a_refusal_at_the_door_writes_nothing_also_in_a_transaction(hf: Holdfast) -> None:
    """enqueue_many is all or nothing; in the caller's transaction the same question is asked there."""
    classify = calls_model(hf)
    await hf.budgets.set("acme", "ai", cents=0)
    jobs = [classify.options(tenant=tenant).job() for tenant in ("beta", "acme")]
    with pytest.raises(BudgetExhausted):
        await hf.enqueue_many(jobs)
    async with hf.transaction() as tx:
        with pytest.raises(BudgetExhausted):
            await hf.enqueue_many(jobs, tx=tx)
    assert await hf.jobs() == []


# -- what it costs, and what is refused --------------------------------------------------------------------------------


async def test_a_task_without_a_budget_asks_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shared statement at the door or before the run, and nothing about money is written."""
    asked: list[str] = []
    shared = hf.store.shared

    async def noted(statement: str, *args: Any) -> Any:
        if not statement.startswith("agenda"):  # the scheduler's own look
            asked.append(statement)
        return await shared(statement, *args)

    monkeypatch.setattr(hf.store, "shared", noted)

    @hf.task
    async def plain() -> None: ...

    job = await plain.options(tenant="acme").enqueue()
    await drain(hf, reap=False)
    assert (await hf.get(job.id)).state is State.COMPLETED
    assert asked == []


@pytest.mark.parametrize(
    "options", [{"budget_max": 5}, {"budget": "ai", "budget_max": -1}, {"budget": "ai", "on_budget": "wait"}, {"budget": ""}]
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    """When the task is defined, by name."""
    hf = Holdfast("sqlite:///:memory:")
    with pytest.raises(ConfigError, match="budget"):

        @hf.task(**options)
        async def nothing() -> None: ...


async def test_a_process_of_its_own_spends_and_blames_the_service_too(isolated: ModuleType) -> None:
    """What was spent there is on record when the run has ended, and its exception counts for the breaker."""
    hf: Holdfast = isolated.hf
    for task in (isolated.pays_and_fails, isolated.pays_without_waiting):
        await task.options(tenant="acme").enqueue()
    async with asyncio.timeout(60):
        await hf.run_worker(exit_when_idle=0.0, concurrency=1)
    assert (await hf.budgets.get("acme", "ai")).spent == 12
    state = await hf.breakers.get("linear")
    assert (state.failures, state.reason) == (1, "ConnectionError: connection refused")
