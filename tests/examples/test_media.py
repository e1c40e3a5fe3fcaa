"""examples/media: three stages, each with its own deadline, none lost between two."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.enqueue import plan
from tests.examples.conftest import Load, quick, work_until
from tests.support.stand_in import CUT, HANG, Answer, StandIn, too_many

TASKS = ("clip", "transcribe", "burn_in")


def video(folder: Path) -> str:
    (folder / "talk.mp4").write_bytes(b"0123456789")
    return "talk.mp4"


async def run(module: ModuleType, name: str) -> dict[str, Any]:
    """The jobs of the three stages, once the last has ended."""
    await module.hf.migrate()
    quick(module.transcribe)
    await module.clip.options(tenant="acme").enqueue(name, 2, 6)

    async def done() -> bool:
        found = await module.hf.jobs(tenant="acme")
        return all(job.state.ended for job in found) and (len(found) == 3 or any(job.state == "failed" for job in found))

    await work_until(module.hf, done)
    return {job.task: job for job in await module.hf.jobs(tenant="acme")}


async def test_a_clip_passes_all_stages_although_asr_fails(load: Load, service: StandIn, tmp_path: Path) -> None:
    """Busy, broken, cut off; and each stage has the deadline that its factor gives: 20 x 6, 60 x 12, 30 x 8 seconds."""
    service.script = [too_many(0), Answer(503), CUT]
    service.reply = lambda asked: Answer(200, {"text": f"{len(asked.body)} seconds of talk"})
    module = load("media", ASR_URL=service.url, MEDIA_FOLDER=str(tmp_path))
    jobs = await run(module, video(tmp_path))
    assert [jobs[task].state for task in TASKS] == ["completed"] * 3
    assert (tmp_path / jobs["burn_in"].output).read_bytes() == b"2345\n[4 seconds of talk]"
    stages = [module.clip.job("talk.mp4", 0, 1), module.transcribe.job("a.clip"), module.burn_in.job("a.clip", "talk")]
    assert [job.timeout_seconds for job in plan(stages, module.hf.settings)] == [120, 720, 240]
    assert jobs["transcribe"].attempt == 4


async def test_a_stage_that_hangs_is_ended_at_its_deadline_and_tried_again(
    load: Load, service: StandIn, tmp_path: Path
) -> None:
    """By a factor from the environment, under its older name."""
    service.script = [HANG]
    service.reply = lambda asked: Answer(200, {"text": "talk"})
    module = load("media", ASR_URL=service.url, MEDIA_FOLDER=str(tmp_path), ASR_SLA_FACTOR="0.05")
    jobs = await run(module, video(tmp_path))
    first = (await module.hf.runs(jobs["transcribe"].id))[-1]
    assert first.error_code == "deadline_exceeded"
    assert jobs["burn_in"].state == "completed"


async def test_a_part_that_is_none_fails_at_once(load: Load, service: StandIn, tmp_path: Path) -> None:
    """And no stage follows."""
    module = load("media", ASR_URL=service.url, MEDIA_FOLDER=str(tmp_path))
    await module.hf.migrate()
    job = await module.clip.enqueue(video(tmp_path), 6, 2)
    await module.hf.run_worker(exit_when_idle=0.0)
    assert (await module.hf.get(job.id)).error_code == "clip_invalid"
    assert len(await module.hf.jobs()) == 1
