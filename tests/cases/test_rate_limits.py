"""Named rate limits: exact whoever asks at the same time, and what a task does that meets one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, InvalidOption, RateLimited
from holdfast.limits.rate import Algorithm, Taken
from tests.cases.steps import drain, ends, messages
from tests.cases.test_idempotency import apps

TAKERS = 20
ALGORITHMS: tuple[Algorithm, ...] = ("window", "smooth")


async def take(hf: Holdfast, times: int, **who: Any) -> list[Taken]:
    return [await hf.rate.take("export", **who) for _ in range(times)]


def allowed(taken: list[Taken]) -> int:
    return sum(one.allowed for one in taken)


async def buckets(hf: Holdfast) -> dict[str, float]:
    table = "holdfast.rate_buckets" if hf.store.name == "postgres" else "holdfast_rate_buckets"
    async with hf.transaction() as tx:
        return {row["subject"]: row["used"] for row in await tx.fetch(f"SELECT subject, used FROM {table}")}


# -- taking ------------------------------------------------------------------------------------------------------------


async def test_a_window_allows_so_many_and_then_none_until_it_is_over(hf_at: Holdfast, clock: ManualClock) -> None:
    """It tells how many are left and when it opens again; nothing is taken by a refusal."""
    hf_at.limit("export", user=3, per=60)
    clock.advance(1)
    taken = await take(hf_at, 2, user="ana")
    assert [(one.remaining, round(one.reset)) for one in taken] == [(2, 60), (1, 60)]
    clock.advance(20)
    last, refused = await take(hf_at, 2, user="ana")
    assert (last.allowed, last.remaining, refused.allowed, refused.remaining) == (True, 0, False, 0)
    assert (round(refused.reset), round(refused.retry_after), refused.limit, refused.kind) == (40, 40, 3, "user")
    clock.advance(40.001)
    assert allowed(await take(hf_at, 4, user="ana")) == 3


async def test_a_smooth_limit_gives_back_one_after_the_other(hf_at: Holdfast, clock: ManualClock) -> None:
    """After the burst one more is allowed every per/limit seconds, and no burst again before all was given back."""
    hf_at.limit("export", user=6, per=60, algorithm="smooth")
    assert allowed(await take(hf_at, 8, user="ana")) == 6
    refused = (await take(hf_at, 1, user="ana"))[0]
    assert (round(refused.retry_after, 3), round(refused.reset, 3)) == (10, 60)
    clock.advance(9.9)
    assert allowed(await take(hf_at, 1, user="ana")) == 0
    clock.advance(0.1)
    assert allowed(await take(hf_at, 2, user="ana")) == 1
    clock.advance(30)
    taken = await take(hf_at, 4, user="ana")
    assert [one.allowed for one in taken] == [True, True, True, False]
    assert [one.remaining for one in taken] == [2, 1, 0, 0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_twenty_who_ask_at_once_get_five_between_them(database_url: str, algorithm: Algorithm) -> None:
    """Each has connections of its own, and the database's own clock counts."""
    async with apps(database_url, TAKERS) as takers:
        for taker in takers:
            taker.limit("export", user=5, algorithm=algorithm)
        taken = await asyncio.gather(*(taker.rate.take("export", user="ana") for taker in takers))
    assert allowed(list(taken)) == 5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_twenty_users_who_ask_at_once_get_what_their_tenant_has(database_url: str, algorithm: Algorithm) -> None:
    """Both subjects are charged or none: of the refused users nobody has paid."""
    async with apps(database_url, TAKERS) as takers:
        for taker in takers:
            taker.limit("export", user=2, tenant=5, algorithm=algorithm)
        asked = (taker.rate.take("export", user=f"user {no}", tenant="acme") for no, taker in enumerate(takers))
        assert allowed(await asyncio.gather(*asked)) == 5
        charged = await buckets(takers[0])
    assert round(charged.pop("tenant:acme")) == 5
    assert len(charged) == 5


async def test_nobody_is_charged_when_one_of_both_has_none_left(hf_at: Holdfast) -> None:
    """The tenant's last one is still there after a user's refusal, and the other way round."""
    hf_at.limit("export", user=1, tenant=3, key=9, total=100)
    assert allowed(await take(hf_at, 3, user="ana", tenant="acme")) == 1
    assert await buckets(hf_at) == {"user:ana": 1, "tenant:acme": 1, "total:": 1}
    assert allowed(await take(hf_at, 1, user="bob", tenant="acme", key="k1")) == 1
    assert allowed(await take(hf_at, 1, user="cem", tenant="acme")) == 1
    refused = (await take(hf_at, 1, user="dan", tenant="acme"))[0]
    assert (refused.kind, refused.limit) == ("tenant", 3)
    assert "user:dan" not in await buckets(hf_at)


async def test_the_one_with_the_least_left_speaks(hf_at: Holdfast) -> None:
    """Of those who were all allowed."""
    hf_at.limit("export", user=10, tenant=3)
    (taken,) = await take(hf_at, 1, user="ana", tenant="acme")
    assert (taken.kind, taken.limit, taken.remaining) == ("tenant", 3, 2)


async def test_a_taker_who_does_not_say_who_he_is_is_refused(hf_at: Holdfast) -> None:
    """A limit that counts nobody would never end; an unknown one is named."""
    hf_at.limit("export", user=1)
    for who in ({}, {"tenant": "acme"}, {"user": ""}, {"user": "a\0"}):
        with pytest.raises(InvalidOption):
            await take(hf_at, 1, **who)
    with pytest.raises(ConfigError, match=r"no limit called 'exprt'.*export"):
        await hf_at.rate.take("exprt", user="ana")


async def test_a_refusal_can_be_raised(hf_at: Holdfast) -> None:
    """Its sentence and headers say when to come again."""
    hf_at.limit("export", user=1, per=60)
    assert (await hf_at.rate.take("export", user="ana")).require().allowed
    with pytest.raises(RateLimited, match=r"export \(1 per user\) is used up; try again in 60 s") as refused:
        (await hf_at.rate.take("export", user="ana")).require()
    assert refused.value.headers is not None
    assert refused.value.headers["Retry-After"] == "60"


async def test_old_buckets_are_forgotten(hf_at: Holdfast, clock: ManualClock) -> None:
    """By the retention pass, once they are as good as new."""
    hf_at.limit("export", user=1, per=60)
    await take(hf_at, 1, user="ana")
    clock.advance(30)
    await take(hf_at, 1, user="bob")
    clock.advance(31)
    assert (await hf_at.prune())["rate_buckets"] == 1
    assert list(await buckets(hf_at)) == ["user:bob"]


def test_sync_programs_take_too(database_url: str) -> None:
    """The same verb without a loop."""
    hf = Holdfast(database_url)
    try:
        assert hf.rate.take_sync("ai_intake", user="ana").remaining == 29
    finally:
        hf.close()


# -- configuration -----------------------------------------------------------------------------------------------------


def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over what is built in; a name with the prefix is stronger."""
    hf = Holdfast("sqlite:///:memory:")
    assert hf.rate.named("ai_intake").most == {"user": 30, "tenant": 200}
    assert hf.rate.named("linear_export").most == {"user": 60, "tenant": 300}
    monkeypatch.setenv("RL_AI_INTAKE_USER_PER_HOUR", "7")
    monkeypatch.setenv("RL_LINEAR_EXPORT_ORG_PER_HOUR", "8")
    monkeypatch.setenv("HOLDFAST_RL_LINEAR_EXPORT_ORG_PER_HOUR", "9")
    monkeypatch.setenv("RL_MINE_TOTAL_PER_MINUTE", "5")
    hf = Holdfast("sqlite:///:memory:")
    assert hf.rate.named("ai_intake").most == {"user": 7, "tenant": 200}
    assert hf.rate.named("linear_export").most == {"user": 60, "tenant": 9}
    assert hf.limit("mine", user=1, per=60).most == {"user": 1, "total": 5}


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "9" * 12])
def test_a_wrong_number_in_the_environment_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """At the start, with what would be right."""
    monkeypatch.setenv("RL_AI_INTAKE_USER_PER_HOUR", text)
    with pytest.raises(ConfigError, match=r"RL_AI_INTAKE_USER_PER_HOUR: it must be a whole number from 1"):
        Holdfast("sqlite:///:memory:")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"user": 0},
        {"user": 1, "per": 0},
        {"user": 1, "algorithm": "x"},
        {"name": "A b", "user": 1},
        {"name": 7, "user": 1},
        {"user": True},
    ],
)
def test_a_limit_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    """Where it is defined."""
    with pytest.raises(ConfigError, match="limit "):
        Holdfast("sqlite:///:memory:").limit(**{"name": "mine", **wrong})


def test_a_task_with_a_limit_that_is_not_there_is_refused() -> None:
    """When a worker is made, not at its first job."""
    hf = Holdfast("sqlite:///:memory:")

    @hf.task(rate="nowhere")
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="nowhere"):
        hf.worker()


# -- tasks -------------------------------------------------------------------------------------------------------------


@pytest.mark.case("requests-4")
async def test_a_job_that_meets_its_limit_fails_and_can_be_run_again(hf_at: Holdfast, clock: ManualClock) -> None:
    """Its code and message say why, its log says which; retried after the window it completes."""
    hf_at.limit("export", user=1, tenant=5, per=60)

    @hf_at.task(rate="export")
    async def export() -> str:
        return "done"

    jobs = [await export.options(actor="ana", tenant="acme").enqueue() for _ in range(2)]
    await drain(hf_at, concurrency=1)
    found = [await hf_at.get(job.id) for job in jobs]
    failed = next(job for job in found if job.state is State.FAILED)
    assert {job.state for job in found} == {State.COMPLETED, State.FAILED}
    assert (failed.error_code, failed.error_message) == ("rate_limited", "rate limited - try later")
    assert (await messages(hf_at, failed))[0].startswith("The rate limit export (1 for the user) is used up for another 60 s")
    clock.advance(61)
    await hf_at.retry(failed.id)
    await drain(hf_at)
    assert (await ends(hf_at, failed)).state is State.COMPLETED


async def test_a_job_that_may_wait_runs_when_the_window_opens(hf_at: Holdfast, clock: ManualClock) -> None:
    """Meanwhile it is scheduled and says what it waits for; waiting costs no attempt and leaves no error."""
    hf_at.limit("export", tenant=1, per=60)

    @hf_at.task(rate="export", on_rate_limited="wait", max_attempts=1)
    async def export() -> str:
        return "done"

    jobs = [await export.options(tenant="acme").enqueue() for _ in range(2)]
    await drain(hf_at, concurrency=1)
    waiting = next(job for job in [await hf_at.get(job.id) for job in jobs] if job.state is State.QUEUED)
    assert (waiting.attempt, waiting.status, waiting.error_code) == (0, "scheduled", "rate_limit")
    clock.advance(59)
    await drain(hf_at)
    assert (await hf_at.get(waiting.id)).state is State.QUEUED
    clock.advance(2)
    await drain(hf_at)
    done = await hf_at.get(waiting.id)
    assert (done.state, done.error_code, done.error_message) == (State.COMPLETED, None, None)


async def test_a_task_that_asks_by_itself_is_treated_alike(hf_at: Holdfast) -> None:
    """RateLimited out of a task's own code means what its option says."""
    hf_at.limit("export", total=1)

    @hf_at.task(max_attempts=3)
    async def export() -> None:
        (await hf_at.rate.take("export")).require()

    jobs = [await export.enqueue() for _ in range(2)]
    await drain(hf_at, concurrency=1)
    found = [await hf_at.get(job.id) for job in jobs]
    assert sorted(job.error_code or "" for job in found) == ["", "rate_limited"]


async def test_a_job_with_nobody_to_count_for_runs(hf_at: Holdfast) -> None:
    """Neither actor nor tenant: a limit per user or tenant does not concern it."""
    hf_at.limit("export", user=1, tenant=1)

    @hf_at.task(rate="export")
    async def export() -> None: ...

    await hf_at.enqueue_many([export.job() for _ in range(3)])
    await drain(hf_at)
    assert (await hf_at.store.job_counts())["completed"] == 3


async def test_a_job_without_a_rate_asks_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """No statement is sent for it."""
    asked: list[str] = []
    shared = hf.store.shared

    async def counted(statement: str, *args: Any) -> Any:
        asked.append(statement)
        return await shared(statement, *args)

    monkeypatch.setattr(hf.store, "shared", counted)

    @hf.task
    async def work() -> None: ...

    await work.enqueue()
    await drain(hf, reap=False)
    assert [statement for statement in asked if statement.startswith("rate_")] == []
