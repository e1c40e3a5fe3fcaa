"""The same key again: one execution, one answer, whoever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.errors import IdempotencyInProgress, IdempotencyKeyInvalid, IdempotencyKeyReused, InvalidOption
from holdfast.limits.idempotency import RESPONSE_BYTES_MAX
from tests.cases.steps import jobs_stored
from tests.support.processes import Processes
from tests.support.waiting import until

CLIENTS = 20


@contextlib.asynccontextmanager
async def apps(url: str, count: int, **settings: Any) -> AsyncIterator[list[Holdfast]]:
    """As many processes would have it: each with connections of its own."""
    opened = [Holdfast(url, **settings) for _ in range(count)]
    try:
        yield opened
    finally:
        for app in opened:
            await app.aclose()


async def kept(hf: Holdfast) -> int:
    table = "holdfast.idempotency_keys" if hf.store.name == "postgres" else "holdfast_idempotency_keys"
    async with hf.transaction() as tx:
        return int((await tx.fetch(f"SELECT count(*) AS n FROM {table}"))[0]["n"])


async def order(hf: Holdfast, done: list[int], *, key: str | None = "k", body: Any = None, tx: Any = None, **more: Any) -> Any:
    """An endpoint, reduced to what matters."""
    async with hf.idempotent(key, scope=["POST /orders", "ana"], body=body, tx=tx, **more) as once:
        if not once.replayed:
            done.append(len(done) + 1)
            once.store({"order": done[-1]})
        return once.response


async def order_at_last(hf: Holdfast, done: list[int]) -> Any:
    """As a client does it that is told to come again."""

    async def asked() -> Any:
        with contextlib.suppress(IdempotencyInProgress):
            return await order(hf, done)

    return await until(asked)


@pytest.mark.case("requests-1")
async def test_the_same_key_within_a_day_gets_the_first_answer(hf_at: Holdfast, clock: ManualClock) -> None:
    """Without the work being done again; after 24 hours it is a new request."""
    done: list[int] = []
    assert await order(hf_at, done) == {"order": 1}
    clock.advance(hours=23.9)
    assert await order(hf_at, done) == {"order": 1}
    assert done == [1]
    clock.advance(hours=0.2)
    assert await order(hf_at, done) == {"order": 2}


async def test_keys_of_others_are_other_keys(hf: Holdfast) -> None:
    """Scope and tenant keep them apart, also where their texts would run together."""
    done: list[int] = []
    for scope, tenant in (("a", None), ("a", "acme"), ("b", None), (["a", "b"], None), (["ab"], None)):
        async with hf.idempotent("k", scope=scope, tenant=tenant) as once:
            assert not once.replayed
            done.append(1)
            once.store("done")
    assert len(done) == 5


async def test_the_same_key_with_another_body_is_refused(hf: Holdfast) -> None:
    """Nothing is done; the order of an object's fields makes no other body."""
    done: list[int] = []
    await order(hf, done, body={"cents": 5, "for": "ana"})
    with pytest.raises(IdempotencyKeyReused, match="use a new key"):
        await order(hf, done, body={"cents": 6, "for": "ana"})
    assert await order(hf, done, body={"for": "ana", "cents": 5}) == {"order": 1}
    assert done == [1]


async def test_a_second_request_while_the_first_is_running_is_told_so(hf: Holdfast) -> None:
    """And when to come again; another body is refused as such."""
    async with hf.idempotent("k", scope="s", body="a") as once:
        with pytest.raises(IdempotencyInProgress) as told:
            await hf.idempotent("k", scope="s", body="a").__aenter__()
        with pytest.raises(IdempotencyKeyReused):
            await hf.idempotent("k", scope="s", body="b").__aenter__()
        once.store("done")
    assert told.value.retry_after == 1


async def test_work_that_fails_or_stores_nothing_leaves_no_key(hf: Holdfast) -> None:
    """The next caller does it."""
    with pytest.raises(ZeroDivisionError):
        async with hf.idempotent("k", scope="s"):
            raise ZeroDivisionError
    async with hf.idempotent("k", scope="s") as once:
        assert not once.replayed
    assert await kept(hf) == 0


async def test_without_a_key_the_work_is_simply_done(hf: Holdfast) -> None:
    """Twice, if asked twice; unless a key is required. What is no key is refused."""
    done: list[int] = []
    assert [await order(hf, done, key=None) for _ in range(2)] == [{"order": 1}, {"order": 2}]
    for key in (None, "", "x" * 256, "a\0b"):
        with pytest.raises(IdempotencyKeyInvalid):
            await order(hf, done, key=key, required=True)
    assert done == [1, 2]
    assert await kept(hf) == 0


@pytest.mark.parametrize("response", [object(), "x" * 1_048_577, float("nan")])
async def test_an_answer_that_cannot_be_kept_is_refused(hf: Holdfast, response: object) -> None:
    """It says so where it is stored, and leaves no key."""
    with pytest.raises(InvalidOption, match="response"):
        async with hf.idempotent("k", scope="s") as once:
            once.store(response)
    assert await kept(hf) == 0


@pytest.mark.case("C36")
async def test_one_key_from_twenty_clients_at_once_is_done_once(database_url: str) -> None:
    """Each has connections of its own; those who are told to come again get the same answer then."""
    done: list[int] = []
    async with apps(database_url, CLIENTS) as clients:
        answers = await asyncio.gather(*(order_at_last(client, done) for client in clients))
    assert answers == [{"order": 1}] * CLIENTS
    assert done == [1]


@pytest.mark.case("C36", "requests-2")
async def test_one_key_from_twenty_clients_at_once_makes_one_job(database_url: str) -> None:
    """Key and job in one transaction: all get the id of the one job there is."""

    async def client(hf: Holdfast) -> str:
        @hf.task
        async def work() -> None: ...

        async def asked() -> str | None:
            with contextlib.suppress(IdempotencyInProgress):
                async with hf.transaction() as tx, hf.idempotent("k", scope="s", tx=tx) as once:
                    if not once.replayed:
                        once.store((await work.options(tx=tx).enqueue()).id)
                    return str(once.response)
            return None

        return await until(asked)

    async with apps(database_url, CLIENTS) as clients:
        ids = await asyncio.gather(*map(client, clients))
        assert await jobs_stored(clients[0]) == 1
    assert len(set(ids)) == 1


@pytest.mark.case("requests-2")
async def test_key_and_work_are_there_together_or_not_at_all(hf: Holdfast) -> None:
    """A transaction that is rolled back takes both with it, wherever it breaks off."""

    @hf.task
    async def work() -> None: ...

    async def request(*, fail_inside: bool = False, fail_after: bool = False) -> bool:
        async with hf.transaction() as tx:
            async with hf.idempotent("k", scope="s", tx=tx) as once:
                if not once.replayed:
                    await work.options(tx=tx).enqueue()
                    once.store("done")
                if fail_inside:
                    raise ZeroDivisionError
            if fail_after:
                raise ZeroDivisionError
        return once.replayed

    for where in ({"fail_inside": True}, {"fail_after": True}):
        with pytest.raises(ZeroDivisionError):
            await request(**where)
        assert (await jobs_stored(hf), await kept(hf)) == (0, 0)
    assert [await request(), await request()] == [False, True]
    assert (await jobs_stored(hf), await kept(hf)) == (1, 1)


async def test_work_that_takes_long_keeps_its_key(database_url: str) -> None:
    """Its lease is extended as long as it runs."""
    async with apps(database_url, 2, idempotency_lease=2.0) as (first, second):
        asked: list[str] = []

        async def longer_than_its_lease() -> bool:
            with contextlib.suppress(IdempotencyInProgress):
                async with second.idempotent("k", scope="s"):
                    asked.append("let in")
            return asyncio.get_running_loop().time() > over_at

        async with first.idempotent("k", scope="s") as once:
            over_at = asyncio.get_running_loop().time() + 3.0
            await until(longer_than_its_lease)
            once.store("done")
        async with second.idempotent("k", scope="s") as again:
            assert (again.replayed, again.response) == (True, "done")
    assert asked == []


DIES = """
import asyncio, sys
from holdfast import Holdfast

async def main(url):
    hf = Holdfast(url, idempotency_lease=3.0)
    async with hf.idempotent("k", scope="s"):
        print("working", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_killed_process_leaves_its_key_to_the_next_caller(database_url: str, processes: Processes) -> None:
    """While it lived, and until its lease is over, others are told to wait; then one of them does the work."""
    process = processes.python("-c", DIES, database_url)
    await process.printed("working")
    async with apps(database_url, 1) as (hf,):
        with pytest.raises(IdempotencyInProgress):
            await hf.idempotent("k", scope="s").__aenter__()
        process.kill()
        done: list[int] = []

        async def asked() -> bool:
            with contextlib.suppress(IdempotencyInProgress):
                async with hf.idempotent("k", scope="s") as once:
                    done.append(1)
                    once.store("done")
            return bool(done)

        await until(asked)
        async with hf.idempotent("k", scope="s") as again:
            assert again.response == "done"
    assert done == [1]


async def test_a_crash_leaves_a_key_that_knows_its_request(hf_at: Holdfast, clock: ManualClock) -> None:
    """After the lease the same request is let in; another one under the key is still refused."""
    await hf_at.idempotent("k", scope="s", body="a").__aenter__()
    clock.advance(seconds=31)
    with pytest.raises(IdempotencyKeyReused):
        await hf_at.idempotent("k", scope="s", body="b").__aenter__()
    async with hf_at.idempotent("k", scope="s", body="a") as once:
        assert not once.replayed


async def test_old_keys_are_forgotten(hf_at: Holdfast, clock: ManualClock) -> None:
    """By the retention pass, a day after they were made; younger ones stay."""
    done: list[int] = []
    await order(hf_at, done, key="old")
    clock.advance(hours=12)
    await order(hf_at, done, key="young")
    clock.advance(hours=13)
    assert (await hf_at.prune())["idempotency_keys"] == 1
    assert await kept(hf_at) == 1


async def test_a_decorated_function_does_its_work_once_per_key(hf: Holdfast) -> None:
    """Its key is made of its arguments, and these are its body."""
    done: list[int] = []

    @hf.idempotent(lambda order_id, cents: f"charge:{order_id}")
    async def charge(order_id: int, cents: int) -> dict[str, int]:
        done.append(order_id)
        return {"charged": cents}

    assert [await charge(7, 500), await charge(order_id=7, cents=500), await charge(8, 1)] == [
        {"charged": 500}, {"charged": 500}, {"charged": 1},
    ]  # fmt: skip
    with pytest.raises(IdempotencyKeyReused):
        await charge(7, 600)
    assert done == [7, 8]


def test_sync_programs_do_a_thing_once(database_url: str) -> None:
    """With `with`, and as a decorator, without a loop of their own."""
    hf = Holdfast(database_url)
    done: list[int] = []

    @hf.idempotent(str)
    def charge(order_id: int) -> int:
        done.append(order_id)
        return order_id

    try:
        assert [charge(7), charge(7)] == [7, 7]
        for replayed in (False, True):
            with hf.idempotent("k", scope="s") as once:
                assert once.replayed is replayed
                once.store("done")
    finally:
        hf.close()
    assert done == [7]


async def test_a_second_request_does_not_wait_for_the_firsts_transaction(postgres_url: str) -> None:
    """PostgreSQL: it is told at once that the first is running, instead of holding a connection until that has ended."""
    async with apps(postgres_url, 2) as (first, second):
        async with first.transaction() as tx, first.idempotent("k", scope="s", tx=tx) as once:
            async with second.transaction() as other:
                with pytest.raises(IdempotencyInProgress):
                    await asyncio.wait_for(second.idempotent("k", scope="s", tx=other).__aenter__(), 40)
            once.store("done")
        async with second.idempotent("k", scope="s") as again:
            assert again.response == "done"


DIES_IN_TRANSACTION = """
import asyncio, sys
from holdfast import Holdfast

async def main(url):
    hf = Holdfast(url)
    async with hf.transaction() as tx, hf.idempotent("k", scope="s", tx=tx) as once:
        once.store("never committed")
        print("working", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_process_killed_in_its_transaction_leaves_nothing(database_url: str, processes: Processes) -> None:
    """No lease to wait for: the database takes all of it back, and the next caller does the work."""
    process = processes.python("-c", DIES_IN_TRANSACTION, database_url)
    await process.printed("working")
    process.kill()
    done: list[int] = []
    async with apps(database_url, 1) as (hf,):
        assert await order_at_last(hf, done) == {"order": 1}
        async with hf.idempotent("k", scope="s") as once:
            assert not once.replayed


@pytest.mark.parametrize(("more", "kept_again"), [(0, True), (1, False)])
async def test_a_response_of_the_largest_size_is_kept_and_a_larger_one_refused(
    hf: Holdfast, more: int, kept_again: bool
) -> None:
    """The limit counts the bytes of its JSON."""
    response = "x" * (RESPONSE_BYTES_MAX - len('""') + more)
    with contextlib.nullcontext() if kept_again else pytest.raises(InvalidOption, match="answer with a reference"):
        async with hf.idempotent("k", scope="s") as once:
            once.store(response)
    async with hf.idempotent("k", scope="s") as again:
        assert again.replayed is kept_again
        again.store(response[:1])
