"""Circuit breakers: jobs wait for a service that is down, one probe asks after it, and nobody pays while all is well."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Abort, Holdfast, RetryLater, Snooze, State
from holdfast.clock import ManualClock
from holdfast.errors import BreakerOpen, ConfigError, InvalidOption
from holdfast.limits import breaker as breaker_module
from holdfast.limits.breaker import Entry, Verdict
from tests.cases.steps import drain, ends, working
from tests.cases.test_idempotency import apps

CLAIMERS = 8


class Service:
    """Somebody else's API, which can be down."""

    def __init__(self) -> None:
        self.down = True
        self.calls = 0

    async def call(self) -> None:
        self.calls += 1
        if self.down:
            raise ConnectionError("connection refused")


def exports(hf: Holdfast, service: Service, **options: Any) -> Any:
    """A task that needs the service; what is known of the breaker is read anew each time, because the clock stands still."""
    hf.breakers.cache_seconds = 0.0

    @hf.task(needs="linear", **{"max_attempts": 3, "backoff": [0], **options})
    async def export() -> None:
        await service.call()

    return export


async def entered(hf: Holdfast, token: str) -> Entry | None:
    try:
        return await hf.breakers.enter("linear", token)
    except BreakerOpen:
        return None


async def told(hf: Holdfast) -> list[tuple[str, str | None]]:
    found = await hf.events()
    return [(event.type, event.actor) for event in reversed(found) if event.type.startswith("breaker.")]


# -- opening, waiting, closing -----------------------------------------------------------------------------------------


async def test_jobs_wait_for_a_service_that_is_down_without_costing_attempts(hf_at: Holdfast, clock: ManualClock) -> None:
    """Three failures open it; from then on nobody calls the service until the cool-down is over, and then one does."""
    service = Service()
    export = exports(hf_at, service, max_attempts=5)
    hf_at.breaker("linear", failures=3, window=60, cooldown=30)
    jobs = [await export.enqueue() for _ in range(6)]
    await drain(hf_at, concurrency=1)
    clock.advance(1)
    await drain(hf_at, concurrency=1)
    assert service.calls == 3
    state = await hf_at.breakers.get("linear")
    assert (state.state, state.failures, state.reason) == ("open", 3, "ConnectionError: connection refused")
    found = [await hf_at.get(job.id) for job in jobs]
    assert {job.state for job in found} == {State.QUEUED}
    assert sum(job.attempt for job in found) == 3
    why = await hf_at.why(jobs[5].id)
    assert why.code == "breaker_open"
    assert "The service linear has failed too often" in why.sentence
    clock.advance(61)
    await drain(hf_at, concurrency=1)
    assert service.calls == 4, "the probe, and nobody else"
    service.down = False
    for _ in range(4):
        clock.advance(61)
        await drain(hf_at)
    assert {(await hf_at.get(job.id)).state for job in jobs} == {State.COMPLETED}
    assert await told(hf_at) == [("breaker.opened", None), ("breaker.closed", None)]


async def test_failures_count_for_all_processes_and_only_within_their_window(
    database_url: str, clock: ManualClock, store_kind: str
) -> None:
    """Two here and one there open it; two in one window and one in the next do not."""
    async with apps(database_url, 2, clock=clock) as (one, two):
        for hf in (one, two):
            hf.breaker("linear", failures=3, window=60)
        entry = Entry("linear", "t")
        for hf in (one, two):
            await hf.breakers.leave(entry, Verdict.FAILS, "down")
        clock.advance(61)
        await one.breakers.leave(entry, Verdict.FAILS, "down")
        assert (await one.breakers.get("linear")).state == "closed"
        for hf in (two, two):
            await hf.breakers.leave(entry, Verdict.FAILS, "down")
        assert (await one.breakers.get("linear")).state == "open"
        assert await entered(one, "x") is None


async def test_exactly_one_probe_goes_through_whoever_asks(database_url: str, clock: ManualClock) -> None:
    """Eight at once, each with connections of its own; while it is under way, and after it has failed, nobody else."""
    async with apps(database_url, CLAIMERS, clock=clock) as hfs:
        for hf in hfs:
            hf.breakers.cache_seconds = 0.0
        await hfs[0].breakers.open("linear", seconds=30)
        clock.advance(31)
        found = await asyncio.gather(*(entered(hf, f"{no}") for no, hf in enumerate(hfs)))
        (winner,) = [no for no, entry in enumerate(found) if entry is not None]
        entry = found[winner]
        assert entry is not None
        assert (await hfs[0].breakers.get("linear")).state == "half_open"
        assert await asyncio.gather(*(entered(hf, f"again {no}") for no, hf in enumerate(hfs))) == [None] * CLAIMERS
        await hfs[winner].breakers.leave(entry, Verdict.FAILS, "still down")
        assert await asyncio.gather(*(entered(hf, f"later {no}") for no, hf in enumerate(hfs))) == [None] * CLAIMERS
        assert (await hfs[0].breakers.get("linear")).reason == "still down"


async def test_a_probe_whose_worker_died_makes_room_for_the_next(database_url: str, clock: ManualClock) -> None:
    """It is not heard of any more; and should it come back, what it says is not taken."""
    async with apps(database_url, 2, clock=clock) as (dead, alive):
        for hf in (dead, alive):
            hf.breakers.cache_seconds = 0.0
        await alive.breakers.open("linear", seconds=30)
        clock.advance(31)
        lost = await entered(dead, "dead")
        assert lost is not None and lost.keeper is not None
        lost.keeper.cancel()
        clock.advance(breaker_module.PROBE_SECONDS - 1)
        assert await entered(alive, "too soon") is None
        clock.advance(2)
        second = await entered(alive, "alive")
        assert second is not None
        await dead.breakers.leave(lost, Verdict.WORKS, None)
        assert (await alive.breakers.get("linear")).state == "half_open"
        await alive.breakers.leave(second, Verdict.WORKS, None)
        assert (await alive.breakers.get("linear")).state == "closed"


async def test_a_long_probe_says_that_it_is_still_at_it(
    database_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is let through while it is alive, however long it takes."""
    monkeypatch.setattr(breaker_module, "PROBE_SECONDS", 0.03)
    async with apps(database_url, 2) as (one, other):
        one.breakers.cache_seconds = other.breakers.cache_seconds = 0.0
        await one.breakers.open("linear", seconds=0)
        renewed = asyncio.Event()
        shared = one.store.shared

        async def noted(statement: str, *args: Any) -> Any:
            rows = await shared(statement, *args)
            if statement == "breaker_keep_probe" and rows:
                renewed.set()
            return rows

        monkeypatch.setattr(one.store, "shared", noted)
        entry = await entered(one, "slow")
        assert entry is not None
        await asyncio.wait_for(renewed.wait(), 60)
        await one.breakers.leave(entry, Verdict.WORKS, None)
        assert (await other.breakers.get("linear")).state == "closed"


async def test_a_probe_that_tells_nothing_lets_the_next_one_try(hf_at: Holdfast, clock: ManualClock) -> None:
    """A job that snoozes or aborts says nothing of the service."""
    hf_at.breakers.cache_seconds = 0.0
    await hf_at.breakers.open("linear", seconds=30)
    clock.advance(31)
    first = await entered(hf_at, "first")
    assert first is not None
    await hf_at.breakers.leave(first, *hf_at.breakers.verdict_of("linear", Snooze(5)))
    second = await entered(hf_at, "second")
    assert second is not None
    await hf_at.breakers.leave(second, Verdict.WORKS, None)


async def test_waiting_jobs_do_not_come_back_all_at_once(hf_at: Holdfast) -> None:
    """They ask again spread over as long as the cool-down takes, not before it is over."""
    hf_at.breaker("linear", cooldown=100)
    await hf_at.breakers.open("linear", seconds=100)
    waits = []
    for no in range(200):
        with pytest.raises(BreakerOpen) as refused:
            await hf_at.breakers.enter("linear", f"{no}")
        waits.append(refused.value.retry_after)
    assert min(waits) > 99 and max(waits) <= 200
    per_tenth = [sum(100 + 10 * tenth <= wait < 110 + 10 * tenth for wait in waits) for tenth in range(10)]
    assert max(per_tenth) < 60


# -- what counts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (ConnectionError("refused"), True),
        (TimeoutError(), True),
        (RetryLater(5), True),
        (Abort("no such issue"), False),
        (Snooze(5), False),
        (InvalidOption("wrong"), False),
        (LookupError("not mine"), False),
        (asyncio.CancelledError(), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_only_what_may_be_the_services_fault_counts(error: BaseException, counts: bool) -> None:
    """Not what a task decides, what is permanent for it, or what is our own."""
    hf = Holdfast("sqlite:///:memory:")
    verdict, _ = hf.breakers.verdict_of("linear", error, (LookupError,))
    assert (verdict is Verdict.FAILS) is counts


def test_a_breaker_can_name_the_errors_that_count() -> None:
    """Everything else says nothing of the service; and one exception counts once, however many blocks it passes."""
    hf = Holdfast("sqlite:///:memory:")
    hf.breaker("linear", errors=[OSError])
    assert hf.breakers.verdict_of("linear", ValueError("x"))[0] is Verdict.UNKNOWN
    error = ConnectionError("x")
    assert hf.breakers.verdict_of("linear", error)[0] is Verdict.FAILS
    assert hf.breakers.verdict_of("linear", error)[0] is Verdict.UNKNOWN


async def test_a_run_that_takes_too_long_counts(hf: Holdfast) -> None:
    """A service that does not answer is down too."""
    hf.breaker("linear", failures=1)

    @hf.task(needs="linear", timeout=0.05, max_attempts=1)
    async def hangs() -> None:
        await asyncio.Event().wait()

    job = await hangs.enqueue()
    async with working(hf):
        assert (await ends(hf, job)).error_code == "deadline_exceeded"
    assert (await hf.breakers.get("linear")).state == "open"


# -- in code -----------------------------------------------------------------------------------------------------------


async def test_a_block_inside_a_task_makes_its_job_wait(hf: Holdfast) -> None:
    """`async with hf.breaker(…)`: the job goes back without costing an attempt."""

    @hf.task
    async def sync_issue() -> None:
        async with hf.breaker("linear"):
            raise AssertionError("not while it is open")

    await hf.breakers.open("linear")
    job = await sync_issue.enqueue()
    await drain(hf)
    found = await hf.get(job.id)
    assert (found.state, found.attempt, found.error_code) == (State.QUEUED, 0, "breaker_open")


async def test_a_block_within_the_probe_passes(hf_at: Holdfast, clock: ManualClock) -> None:
    """A task that needs the service and also guards its calls does not lock itself out, in async and in plain functions."""
    hf_at.breakers.cache_seconds = 0.0

    @hf_at.task(needs="linear")
    async def export() -> None:
        async with hf_at.breaker("linear"):
            pass

    @hf_at.task(needs="linear")
    def export_in_thread() -> None:
        with hf_at.breaker("linear"):
            pass

    for task in (export, export_in_thread):
        await hf_at.breakers.open("linear", seconds=10)
        clock.advance(11)
        job = await task.enqueue()
        await drain(hf_at)
        assert (await hf_at.get(job.id)).state is State.COMPLETED
        assert (await hf_at.breakers.get("linear")).state == "closed"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_probe_that_fails_in_a_block_of_its_own_waits_for_the_cool_down(
    hf_at: Holdfast, clock: ManualClock, in_thread: bool
) -> None:
    """Its failure is on record, and the next probe comes a cool-down later, not at once."""
    hf_at.breakers.cache_seconds = 0.0
    linear = hf_at.breaker("linear", failures=3, window=60, cooldown=30)

    async def fails() -> None:
        async with linear:
            raise ConnectionError("refused")

    def fails_in_thread() -> None:
        with linear:
            raise ConnectionError("refused")

    export = hf_at.task(fails_in_thread if in_thread else fails, needs="linear", max_attempts=5)
    await hf_at.breakers.open("linear", seconds=10)
    clock.advance(11)
    await export.enqueue()
    await drain(hf_at)
    found = await hf_at.breakers.get("linear")
    assert (found.state, found.reason) == ("open", "ConnectionError: refused")
    assert found.until_at == clock.now() + timedelta(seconds=30)


async def test_failures_in_blocks_open_it(hf: Holdfast) -> None:
    """Outside of any job, too."""
    linear = hf.breaker("linear", failures=2)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            async with linear:
                raise ConnectionError("refused")
    with pytest.raises(BreakerOpen):
        async with linear:
            raise AssertionError("not while it is open")


# -- people ------------------------------------------------------------------------------------------------------------


async def test_opening_and_closing_by_hand_is_on_record(hf: Holdfast) -> None:
    """Who and why; what was opened by hand stays open until somebody closes it."""
    state = await hf.breakers.open("linear", reason="maintenance", by="ana")
    assert (state.state, state.reason, state.opened_by, state.until_at) == ("open", "maintenance", "ana", None)
    assert await entered(hf, "t") is None
    assert (await hf.breakers.close("linear", by="bob")).state == "closed"
    assert await entered(hf, "t") is not None
    assert await told(hf) == [("breaker.opened", "ana"), ("breaker.closed", "bob")]
    assert [one.name for one in await hf.breakers.list()] == ["linear"]


# -- what it costs -----------------------------------------------------------------------------------------------------


async def test_a_closed_breaker_is_asked_once_a_second_and_not_once_a_job(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty jobs, one look."""
    asked: list[str] = []
    shared = hf.store.shared

    async def noted(statement: str, *args: Any) -> Any:
        if not statement.startswith("agenda"):  # the scheduler's own look
            asked.append(statement)
        return await shared(statement, *args)

    monkeypatch.setattr(hf.store, "shared", noted)
    monkeypatch.setattr(hf.breakers, "cache_seconds", 600.0)

    @hf.task(needs="linear")
    async def export() -> None: ...

    await hf.enqueue_many([export.job() for _ in range(50)])
    await drain(hf, concurrency=1, reap=False)
    assert asked == ["breaker_look"]


@pytest.mark.parametrize("options", [{"failures": 0}, {"window": 0}, {"cooldown": "x"}, {"errors": [1]}])
def test_rules_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    """By name."""
    hf = Holdfast("sqlite:///:memory:")
    with pytest.raises(ConfigError, match=next(iter(options))):
        hf.breaker("linear", **options)
