"""A worker of the release before goes on while the database is migrated and beside workers of this one (D36)."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, State
from tests.apps.upgraded import add_tasks
from tests.support.processes import ROOT, Process, Processes
from tests.support.waiting import until

APP = "tests.apps.upgraded:hf"
IMPATIENT = {
    "HOLDFAST_HEARTBEAT_SEC": "0.5",
    "HOLDFAST_DEFAULT_LEASE_SEC": "30",
    "HOLDFAST_QUEUE_RETRY_BACKOFF_MS_BASE": "0",
}


@pytest.fixture
def empty_url(store_kind: str, database_url: str, tmp_path: Path) -> str:
    if store_kind == "sqlite":
        return f"sqlite:///{tmp_path / 'upgraded.db'}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    return database_url


def started(processes: Processes, url: str, release: str, path: str, *arguments: str) -> Process:
    env = {**IMPATIENT, "HOLDFAST_DATABASE_URL": url, "RELEASE": release, "PYTHONPATH": f"{path}:{ROOT}"}
    return processes.python("-m", "holdfast", "--app", APP, *arguments, env=env)


@pytest.mark.case("D36")
async def test_workers_of_both_releases_serve_one_database(
    empty_url: str, processes: Processes, previous_release: Path
) -> None:
    """The old one starts on its own schema; the new release migrates under it; then both claim, beat, retry and finish."""
    old_path, new_path = str(previous_release), str(ROOT / "src")
    migrated = started(processes, empty_url, "old", old_path, "migrate")
    assert await migrated.exited() == 0, migrated.output
    worker = ("worker", "--concurrency", "4")
    old = started(processes, empty_url, "old", old_path, *worker, "--queues", "shared,old")
    await old.printed("Worker ")
    hf = Holdfast(empty_url, backoff_base=0)
    try:
        assert await hf.migrate() != []  # while the old worker is at work
        new = started(processes, empty_url, "new", new_path, *worker, "--queues", "shared,new")
        await new.printed("Worker ")
        tasks = add_tasks(hf)
        jobs = await hf.enqueue_many([task.job(number) for number in range(10) for task in tasks])
        await until(lambda: all_ended(hf, [job.id for job in jobs]), 90)
        done = [await hf.get(job.id) for job in jobs]
        assert {job.state for job in done} == {State.COMPLETED}, old.output + new.output
        by = {queue: {await job.result() for job in done if job.queue == queue} for queue in ("old", "new")}
        assert by == {"old": {"old"}, "new": {"new"}}
        assert old.returncode is None and "rror" not in old.output.replace("first attempt fails", ""), old.output
        lines = [line.message for job in done if job.queue == "shared" for line in await hf.logs(job.run_id)]
        assert len([line for line in lines if line.startswith("number")]) == 10
    finally:
        await hf.aclose()


async def all_ended(hf: Holdfast, ids: list[str]) -> bool:
    return all([(await hf.get(job_id)).finished_at is not None for job_id in ids])
