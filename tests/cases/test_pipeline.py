"""A pipeline in a real worker: what its steps do to the job, what people read, and that no folder stays."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Abort, Holdfast, State, current
from holdfast.pipeline import Context, Done, Failure, Partial, Pipeline, Step, StepFailed, StepUnavailable, run_tool
from tests.cases.steps import comes_to, drain, ends, lines, working
from tests.support.processes import runs
from tests.support.waiting import until

FOREVER = "import time; time.sleep(600)"


async def nothing(context: Context) -> Done:
    return Done("nothing to do")


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def running(code: str) -> Any:
    """A step's function that runs Python code as a tool."""

    async def run(context: Context) -> Done:
        (await context.tool(python(code))).check()
        return Done("ran")

    return run


async def told(hf: Holdfast, job: Any) -> list[tuple[str, str | None, str]]:
    return [(line.level, line.step, line.message) for line in await lines(hf, job)]


async def test_steps_report_progress_and_lines_with_duration_and_counts(hf: Holdfast, tmp_path: Path) -> None:
    """Each step says that it starts and how it ended; the job shows how far it is."""
    seen: list[tuple[float | None, str | None]] = []
    go = asyncio.Event()

    async def fetch(context: Context) -> Done:
        (context.workspace / "file").write_text("x")
        return Done("{n} files from {place}", n=1)

    async def scan(context: Context) -> Done:
        await go.wait()
        assert (context.workspace / "file").exists() and context.outcomes["fetch"].counts == {"n": 1}
        return Done()

    steps = [Step("fetch", fetch, starting="Fetching from {place}..."), Step("deep_scan", scan)]
    pipeline = Pipeline(steps, workspaces=tmp_path / "ws")

    @hf.task
    async def work() -> list[str]:
        outcomes = await pipeline.run(Context(place="Mars"))
        return [outcome.status for outcome in outcomes.values()]

    async def half_way() -> bool:
        found = await hf.get(job.id)
        seen.append((found.progress, found.stage))
        return seen[-1] == (0.5, "deep_scan")

    job = await work.enqueue()
    async with working(hf):
        await until(half_way)
        go.set()
        assert await job.result(timeout=60) == ["ok", "ok"]
    assert await told(hf, job) == [
        ("info", "fetch", "Fetching from Mars..."),
        ("success", "fetch", "1 files from Mars"),
        ("success", "deep_scan", "Deep scan done"),
    ]
    ended = (await lines(hf, job))[1]
    assert ended.metadata["counts"] == {"n": 1} and ended.duration_ms is not None
    assert list((tmp_path / "ws").iterdir()) == []


async def unavailable(context: Context) -> Done:
    raise StepUnavailable("Scan skipped (Scanner not installed)")


async def broken(context: Context) -> Done:
    raise ValueError("no such customer")


async def hanging(context: Context) -> Done:
    await asyncio.Event().wait()
    return Done()


async def half(context: Context) -> Done:
    return Partial("2 of 3 scanned", ["c.js: too large"])


async def without_tool(context: Context) -> Done:
    await context.tool(["no-such-scanner"])
    return Done()


TRACEBACK = "import sys; print('noise', file=sys.stderr); raise LookupError('no rules')"


@pytest.mark.case("pipeline-2")
@pytest.mark.parametrize(
    ("run", "status", "message"),
    [
        (unavailable, "unavailable", "Scan skipped (Scanner not installed)"),
        (without_tool, "unavailable", "Scan unavailable (no-such-scanner not installed)"),
        (broken, "failed", "Scan failed: ValueError: no such customer"),
        (hanging, "failed", "Scan timed out"),
        (half, "partial", "2 of 3 scanned"),
        (running(TRACEBACK), "failed", "Scan failed: LookupError: no rules"),
        (running(f"hoard = bytearray(200 * 1024 * 1024); {FOREVER}"), "failed", "Scan ran out of memory - skipped"),
        (running("import sys; sys.exit('error: 429 from Mars')"), "failed", "Mars asks to wait"),
    ],
)
async def test_an_optional_step_that_fails_is_a_warning_and_the_pipeline_goes_on(
    hf: Holdfast, tmp_path: Path, run: Any, status: str, message: str
) -> None:
    """Missing, crashed, too slow or too large: the job completes, and the outcome is kept."""
    failures = [
        Failure(on="memory", message="Scan ran out of memory - skipped"),
        Failure(pattern="429 from (?P<who>[A-Z]\\w+)", exit_code=1, message="{who} asks to wait"),
    ]
    patience = 0.2 if run is hanging else 60
    scan = Step("scan", run, critical=False, timeout=patience, memory_mb=100, failures=failures)
    pipeline = Pipeline([scan, Step("after", nothing)], workspaces=tmp_path / "ws")

    @hf.task
    async def work() -> list[str]:
        return [outcome.status for outcome in (await pipeline.run(Context())).values()]

    job = await work.enqueue()
    await drain(hf)
    assert await job.result(timeout=0) == [status, "ok"]
    assert await told(hf, job) == [("warning", "scan", message), ("success", "after", "nothing to do")]
    assert list((tmp_path / "ws").iterdir()) == []


@pytest.mark.case("pipeline-1", "pipeline-3")
@pytest.mark.parametrize("own_words", [False, True])
async def test_a_critical_failure_ends_the_job_with_the_message_of_the_table(
    hf: Holdfast, tmp_path: Path, own_words: bool
) -> None:
    """At once, with its code; no later step runs, and the folder is gone. The first line that matches counts."""
    after: list[str] = []

    async def say_so(context: Context) -> Done:
        raise StepFailed("Branch 'dev' not found", code="no_branch")

    async def later(context: Context) -> Done:
        after.append("ran")
        return Done()

    refused = "import sys; sys.stderr.write('Cloning...\\nfatal: Remote branch dev not found\\n'); sys.exit(128)"
    failures = [
        Failure(
            pattern="^fatal: Remote branch (?P<branch>.+) not found", message="Branch '{branch}' not found", code="no_branch"
        ),
        Failure(pattern="not found", message="Repository not found"),
    ]
    clone = Step("cloning", say_so if own_words else running(refused), failures=failures)
    pipeline = Pipeline([clone, Step("later", later)], workspaces=tmp_path / "ws")

    @hf.task(max_attempts=3, backoff=(0,))
    async def work() -> None:
        await pipeline.run(Context())

    job = await work.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert (failed.state, failed.attempt, failed.error_code) == (State.FAILED, 1, "no_branch")
    assert failed.error_message == "Branch 'dev' not found"
    assert ("error", "cloning", "Branch 'dev' not found") in await told(hf, job)
    assert after == [] and list((tmp_path / "ws").iterdir()) == []


@pytest.mark.parametrize("kind", ["exception", "tool", "not permanent"])
async def test_a_critical_failure_that_nobody_knows_is_retried(hf: Holdfast, tmp_path: Path, kind: str) -> None:
    """Only what is recognised as permanent ends the job at once."""

    async def fail_once(context: Context) -> Done:
        if current().attempt > 1:
            return Done("worked")
        if kind == "tool":
            (await context.tool(python("import sys; sys.exit('boom')"))).check()
        raise StepFailed("database away", permanent=False) if kind == "not permanent" else ValueError("boom")

    pipeline = Pipeline([Step("sync", fail_once)], workspaces=tmp_path)

    @hf.task(max_attempts=2, backoff=(0,))
    async def work() -> None:
        await pipeline.run(Context())

    job = await work.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).attempt == 2 and (await hf.get(job.id)).state is State.COMPLETED


async def test_an_optional_step_can_still_steer_the_job(hf: Holdfast, tmp_path: Path) -> None:
    """Abort, RetryLater and Snooze mean the job, not the step."""

    async def stop(context: Context) -> Done:
        raise Abort("enough", code="enough")

    pipeline = Pipeline([Step("scan", stop, critical=False)], workspaces=tmp_path)

    @hf.task
    async def work() -> None:
        await pipeline.run(Context())

    job = await work.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).error_code == "enough"


@pytest.mark.case("L10")
@pytest.mark.parametrize("kind", ["at the boundary", "in a tool", "in a tool of its own", "immediate"])
async def test_a_cancelled_pipeline_runs_nothing_more_and_leaves_nothing(hf: Holdfast, tmp_path: Path, kind: str) -> None:
    """The running tool is ended, the folder is gone, the job is cancelled, and the worker takes the next one."""
    after: list[str] = []
    go, workspaces = asyncio.Event(), tmp_path / "ws"

    async def first(context: Context) -> Done:
        (context.workspace / "clone").mkdir()
        if kind == "at the boundary":
            await go.wait()
        else:
            code = f"import os; open('pid.part', 'w').write(str(os.getpid())); os.rename('pid.part', 'pid'); {FOREVER}"
            own = kind == "in a tool of its own"
            tool = run_tool(python(code), cwd=context.workspace, timeout=60) if own else context.tool(python(code))
            (await tool).check()
        return Done()

    async def later(context: Context) -> Done:
        after.append("ran")
        return Done()

    steps = [Step("first", first, critical=False), Step("later", later)]
    pipeline = Pipeline(steps, workspaces=workspaces)

    @hf.task(cancel="immediate" if kind == "immediate" else "cooperative")
    async def work() -> None:
        await pipeline.run(Context())

    @hf.task
    async def following() -> str:
        return "next"

    job, next_job = await work.enqueue(), await following.enqueue()
    async with working(hf, concurrency=1) as worker:
        await comes_to(hf, job, State.RUNNING)
        found = await until(lambda: list(workspaces.glob("run-*/clone" if kind == "at the boundary" else "run-*/pid")))
        pid = None if kind == "at the boundary" else int(found[0].read_text())
        await hf.cancel(job.id, by="ana")
        await until(lambda: all(attempt.cancelled for attempt in worker.running.values()))
        go.set()
        assert (await ends(hf, job)).state is State.CANCELLED
        assert await next_job.result(timeout=60) == "next"
    assert after == [] and list(workspaces.iterdir()) == []
    assert pid is None or not runs(pid)
    ended = ["First done"] if kind == "at the boundary" else []
    assert [message for _, _, message in await told(hf, job)] == [*ended, "Cancelled by ana"]


async def test_a_retry_skips_the_steps_that_are_remembered_and_still_valid(hf: Holdfast, tmp_path: Path) -> None:
    """The clone runs again; the stored result is skipped with its counts, unless what it depends on has changed."""
    ran: list[str] = []

    async def clone(context: Context) -> Done:
        ran.append("clone")
        context.values["commit"] = "abc"
        return Done()

    async def sync(context: Context) -> Done:
        ran.append("sync")
        return Done("{rows} rows", rows=5)

    async def count(context: Context) -> Done:
        ran.append("count")
        return Done("counted")

    async def partly(context: Context) -> Done:
        ran.append("partly")
        return Partial("a part", ["the rest"])

    async def fail_once(context: Context) -> Done:
        assert context.outcomes["sync"].counts == {"rows": 5}
        if current().attempt == 1:
            raise ConnectionError("gone")
        return Done("{rows} again", rows=context.outcomes["sync"].counts["rows"])

    pipeline = Pipeline(
        [
            Step("clone", clone),
            Step("sync", sync, remember=lambda context: context.values["commit"]),
            Step("count", count, remember=lambda context: current().attempt),
            Step("partly", partly, remember=True),
            Step("last", fail_once),
        ],
        workspaces=tmp_path,
    )

    @hf.task(backoff=(0,))
    async def work() -> None:
        await pipeline.run(Context())

    job = await work.enqueue()
    await drain(hf)
    assert ran == ["clone", "sync", "count", "partly", "clone", "count", "partly"]
    assert ("info", "sync", "5 rows (kept from an earlier attempt)") in await told(hf, job)
    assert ("success", "last", "5 again") in await told(hf, job)


@pytest.mark.case("pipeline-4")
async def test_a_tool_near_its_memory_limit_is_a_warning(hf: Holdfast, tmp_path: Path) -> None:
    """Above four fifths; nothing more happens."""
    code = "import time; hoard = bytearray(100 * 1024 * 1024); time.sleep(2.5)"
    pipeline = Pipeline([Step("scan", running(code), memory_mb=120)], workspaces=tmp_path)

    @hf.task
    async def work() -> None:
        await pipeline.run(Context())

    job = await work.enqueue()
    await drain(hf)
    (level, step, message), ended = await told(hf, job)
    assert (level, step) == ("warning", "scan") and "came close to its memory limit" in message
    assert ended == ("success", "scan", "ran")
