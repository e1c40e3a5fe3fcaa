"""Remembered steps: what is done is not done again in the next attempt."""

from __future__ import annotations

from holdfast.store.protocol import Leaving, Store
from tests.conformance.scene import claim, insert_some, leave, start


async def result_of(store: Store, job_id: str, name: str = "fetch", fingerprint: str = "f1") -> str | None:
    found = await store.step_get(job_id, name, fingerprint)
    return None if found is None else found.result.replace(" ", "")


async def test_a_saved_step_is_found_by_name_and_arguments(store: Store) -> None:
    """Another name or other arguments are another step."""
    run = await start(store)
    assert await store.step_save_if_leased(run.id, run.run_id, "fetch", "f1", '{"pages":[1,null]}')
    assert await result_of(store, run.id) == '{"pages":[1,null]}'
    assert await result_of(store, run.id, name="other") is None
    assert await result_of(store, run.id, fingerprint="f2") is None


async def test_a_step_outlives_its_attempt(store: Store) -> None:
    """The next run of the same job finds it."""
    run = await start(store)
    await store.step_save_if_leased(run.id, run.run_id, "fetch", "f1", '"kept"')
    await leave(store, run, Leaving.RETRY)
    await claim(store)
    assert await result_of(store, run.id) == '"kept"'


async def test_a_step_belongs_to_its_job(store: Store) -> None:
    """The same step of another job is not done yet."""
    await insert_some(store, 2)
    one, other = (await claim(store, 2)).jobs
    await store.step_save_if_leased(one.id, one.run_id, "fetch", "f1", "1")
    assert await result_of(store, other.id) is None


async def test_the_first_result_of_a_step_stays(store: Store) -> None:
    """A second save, as a repeated one after a lost answer, changes nothing and gets the stored result."""
    run = await start(store)
    for result in ("1", "2", "2"):
        saved = await store.step_save_if_leased(run.id, run.run_id, "fetch", "f1", result)
        assert saved is not None and saved.result == "1"
    assert await result_of(store, run.id) == "1"
