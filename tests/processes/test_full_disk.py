"""A disk that is full for a while: nothing is acknowledged that is not kept, nobody ends, and afterwards everything goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageUnavailable
from tests.processes import audit
from tests.processes.scene import Scene, fresh_tasks
from tests.support.processes import Processes
from tests.support.waiting import until
from tools.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Of eight megabytes."""
    with small_disk(tmp_path, 8) as made:
        if made is None:
            pytest.skip("only root may mount a small disk")
        yield made


@pytest.fixture
async def scene(disk: SmallDisk, tmp_path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """Its SQLite file is on the small disk, what its tasks write down is not."""
    url = f"sqlite:///{disk.folder}/jobs.db"
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", url)
    made = Scene(fresh_tasks(), url, tmp_path, processes)
    await made.hf.migrate()
    await audit.install(made.hf)
    yield made
    processes.end_all()
    await made.hf.aclose()


async def test_a_full_disk_is_told_and_everything_goes_on_when_it_has_room(disk: SmallDisk, scene: Scene) -> None:
    """The same worker runs what was acknowledged before, and what is enqueued after; a run that ended meanwhile counts."""
    worker = scene.worker()
    held = await scene.tasks.hold.enqueue(scene.folder)
    await scene.started(held)
    acknowledged = [held.id]
    disk.fill()

    async def refused() -> str | None:
        """What is left in the files that are there is used up first."""
        try:
            jobs = await scene.hf.enqueue_many([scene.tasks.work.job(scene.folder, 0) for _ in range(30)])
        except StorageUnavailable as error:
            return str(error) if "disk is full" in str(error) else None  # or the file was locked for long
        acknowledged.extend(job.id for job in jobs)
        return None

    await until(refused, 60)
    scene.let_go(held)
    await until(lambda: scene.marks("done", held), 60)
    disk.empty()
    acknowledged.append((await scene.tasks.work.enqueue(scene.folder, 0)).id)
    await scene.all_ended()
    await scene.assert_all_done_once(acknowledged)
    assert worker.returncode is None and len(scene.marks("started", held)) == 1
