"""`holdfast jobs logs -f` beside a real worker, as somebody who watches a job calls it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.job import LogLine
from holdfast.store.protocol import LogBatch
from tests.processes.scene import APP, Scene
from tests.support.processes import ROOT, Process, Processes


def follow(processes: Processes, scene: Scene, job_id: str, *options: str) -> Process:
    return processes.holdfast("jobs", "logs", job_id, "--follow", *options, app=APP, database_url=scene.url)


async def test_a_job_is_followed_from_the_queue_to_its_end(scene: Scene, processes: Processes) -> None:
    """Another process writes; the lines come while it works, and the command ends with the job, with 0."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    following = follow(processes, scene, job.id)
    scene.worker()
    await following.printed("first half", 60)
    assert following.returncode is None
    Path(scene.folder, f"{job.id}.go1").touch()
    assert await following.exited(40) == 0
    lines = following.output.splitlines()
    assert [line[9:] for line in lines if "half" in line] == ["info    first half", "info    second half"]
    assert lines[-1] == "The job is completed."


async def test_a_killed_worker_and_the_next_attempt_are_seen(short_lease: None, scene: Scene, processes: Processes) -> None:
    """The reaper's line ends the first run, the second one follows, each line once."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    following = follow(processes, scene, job.id, "--json")
    worker = scene.worker()
    await following.printed("first half", 60)
    worker.kill()
    scene.worker()
    scene.reaper()
    await scene.started(job, run_no=2)
    Path(scene.folder, f"{job.id}.go2").touch()
    assert await following.exited(60) == 0
    found = [json.loads(line) for line in following.output.splitlines() if line.startswith("{")]
    told = [(line["run_no"], line["no"], line["message"]) for line in found]
    assert [(run_no, text) for run_no, _, text in told if "half" in text] == [
        (1, "first half"),
        (2, "first half"),
        (2, "second half"),
    ]
    assert any(run_no == 1 and "worker died" in text for run_no, _, text in told)
    assert len({(run_no, no) for run_no, no, _ in told}) == len(told)


async def test_ctrl_c_ends_following_quietly(scene: Scene, processes: Processes) -> None:
    """The job goes on without being watched."""
    job = await scene.tasks.hold.enqueue(scene.folder)
    scene.worker()
    following = follow(processes, scene, job.id)
    await following.printed("first half", 60)
    following.signal_group(signal.SIGINT)
    assert await following.exited() == 130
    assert "Traceback" not in following.output and "Error" not in following.output
    assert (await scene.hf.get(job.id)).status == "running"


async def test_a_reader_who_has_seen_enough_is_no_error(scene: Scene) -> None:
    """`holdfast jobs logs ID | head` prints no traceback when head has gone."""
    job = await scene.tasks.tell_pid.enqueue()
    claim = await scene.hf.store.job_claim(worker="w", machine=None, queues=["default"], tasks=["tell_pid"], limit=1)
    run_id = claim.jobs[0].run_id
    lines = [LogLine(run_id=run_id, no=no, level="info", message="x" * 1000) for no in range(1, 2001)]
    await scene.hf.store.log_append_if_leased([LogBatch(job.id, run_id, lines)])
    command = f"{sys.executable} -m holdfast --database '{scene.url}' jobs logs {job.id} | head -1"
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    done = await asyncio.to_thread(
        subprocess.run, command, shell=True, cwd=scene.folder, env=env, capture_output=True, text=True, timeout=100
    )
    assert done.stdout.endswith("xxx\n") and done.stderr == ""
