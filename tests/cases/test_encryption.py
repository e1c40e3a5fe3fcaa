"""Arguments, results and results of steps sealed in the database: with the keys nobody notices, without them nobody reads."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from holdfast import Holdfast, State, step
from holdfast.doctor import examine
from holdfast.errors import ConfigError, SealedUnreadable
from tests.conformance.scene import by_hand
from tests.web.scene import Scene

OLD, NEW = (base64.b64encode(letter * 32).decode() for letter in (b"o", b"n"))
Open = Callable[..., Holdfast]


@pytest.fixture
async def opened(database_url: str) -> AsyncIterator[Open]:
    """Applications on one database, with keys or without."""
    apps: list[Holdfast] = []

    def open_one(*keys: str) -> Holdfast:
        hf = Holdfast(database_url, encryption_keys=list(keys), backoff_base=0)
        apps.append(hf)

        @hf.task(max_attempts=2, expose="member")
        async def greet(name: str, fail: bool = False) -> str:
            said = await step("greeting", lambda: f"hello {name}")
            if fail and (await hf.jobs(limit=1))[0].attempt == 1:
                raise ValueError("once more")
            return f"{said}!"

        return hf

    yield open_one
    for hf in apps:
        await hf.aclose()


async def stored(hf: Holdfast) -> str:
    """All that the database holds of jobs and steps, as text."""
    rows = await by_hand(hf.store, "SELECT * FROM {jobs}") + await by_hand(hf.store, "SELECT * FROM {steps}")
    return repr(rows)


async def test_nothing_of_arguments_results_and_steps_can_be_read_in_the_database(opened: Open) -> None:
    """The task and whoever waits for its result get them as ever, also after a retry that finds a step done."""
    hf = opened(NEW)
    job = await hf.tasks["greet"].enqueue("Zacharias", fail=True)
    assert "Zacharias" not in await stored(hf) and "$sealed" in await stored(hf)
    await hf.run_worker(exit_when_idle=0.0)
    await hf.run_worker(exit_when_idle=0.0)
    assert await job.result() == "hello Zacharias!"
    assert "Zacharias" not in await stored(hf) and (await hf.get(job.id)).attempt == 2


async def test_without_keys_everything_is_stored_as_before(opened: Open) -> None:
    """And what was stored before there were keys stays readable with them."""
    hf = opened()
    job = await hf.tasks["greet"].enqueue("Ana")
    assert "$sealed" not in await stored(hf)
    with_keys = opened(NEW)
    await with_keys.run_worker(exit_when_idle=0.0)
    assert await (await with_keys.get(job.id)).result() == "hello Ana!"


async def test_keys_are_changed_by_putting_the_new_one_in_front(opened: Open) -> None:
    """Old jobs open with the old key as long as it is on the list; new ones are sealed with the first."""
    before = await opened(OLD).tasks["greet"].enqueue("Ana")
    both = opened(NEW, OLD)
    after = await both.tasks["greet"].enqueue("Ben")
    await both.run_worker(exit_when_idle=0.0)
    assert await (await both.get(before.id)).result() == "hello Ana!"
    assert await (await opened(NEW).get(after.id)).result() == "hello Ben!"


@pytest.mark.parametrize("keys", [(), (OLD,)])
async def test_a_worker_without_the_key_fails_the_job_with_a_code_that_says_so(opened: Open, keys: tuple[str, ...]) -> None:
    """The task is not called, nothing of the arguments is in the error, and with the key a retry does the job."""
    job = await opened(NEW).tasks["greet"].enqueue("Zacharias")
    other = opened(*keys)
    await other.run_worker(exit_when_idle=0.0)
    await other.run_worker(exit_when_idle=0.0)
    failed = await other.get(job.id)
    assert (failed.state, failed.error_code) == (State.FAILED, "sealed_unreadable")
    assert "HOLDFAST_ENCRYPTION_KEYS" in str(failed.error_message) and "Zacharias" not in str(failed.error_message)
    right = opened(NEW)
    await right.retry(job.id)
    await right.run_worker(exit_when_idle=0.0)
    assert await (await right.get(job.id)).result() == "hello Zacharias!"
    with pytest.raises(SealedUnreadable):
        await (await other.get(job.id)).result()


async def test_what_was_sealed_for_one_job_opens_in_no_other(opened: Open) -> None:
    """Somebody who can write to the database cannot make a job run with another one's arguments."""
    hf = opened(NEW)
    first, second = [await hf.tasks["greet"].enqueue(name) for name in ("Ana", "Ben")]
    await by_hand(
        hf.store, f"UPDATE {{jobs}} SET args = (SELECT args FROM {{jobs}} WHERE id = '{first.id}') WHERE id = '{second.id}'"
    )
    await hf.run_worker(exit_when_idle=0.0)
    await hf.run_worker(exit_when_idle=0.0)
    assert ((await hf.get(first.id)).state, (await hf.get(second.id)).error_code) == (State.COMPLETED, "sealed_unreadable")


async def test_people_are_shown_that_something_is_sealed(database_url: str) -> None:
    """By the API, in lists and alone, whoever asks."""
    scene = Scene(Holdfast(database_url, encryption_keys=[NEW]))
    job_id = await scene.enqueue()
    await scene.work()
    one: Any = (await scene.get("acme admin", f"/api/jobs/{job_id}")).json()
    (listed,) = (await scene.get("acme admin", "/api/jobs")).json()["items"]
    assert (one["args"], one["result"], listed.get("args", "sealed")) == ("sealed", "sealed", "sealed")
    await scene.hf.aclose()


async def test_doctor_tells_of_jobs_that_nobody_here_can_open(opened: Open) -> None:
    """By the name of the key that is missing, and all is well where it is there."""
    await opened(NEW).tasks["greet"].enqueue("Ana")
    found = {}
    for keys in ((NEW,), (OLD,), ()):
        found[keys] = next((one for one in await examine(opened(*keys)) if one.name == "encryption"), None)
    right, wrong, none = found[(NEW,)], found[(OLD,)], found[()]
    assert right is not None and right.status == "ok"
    assert wrong is not None and none is not None and (wrong.status, none.status) == ("error", "error")


@pytest.mark.parametrize("value", ["short", "x" * 44, "!" * 44, f"{NEW} short", 7, [7]])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(value: Any) -> None:
    """At start, by name."""
    with pytest.raises(ConfigError, match="encryption_keys cannot be used") as refused:
        Holdfast("sqlite://", encryption_keys=value)
    assert NEW not in str(refused.value) and "!!!" not in str(refused.value)


def test_the_package_for_it_is_imported_only_where_keys_are_used() -> None:
    """A worker without keys starts as light as before."""
    code = "import sys, holdfast, holdfast.run, holdfast.enqueue; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
