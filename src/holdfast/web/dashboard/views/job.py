"""One job: its state and why, its runs and steps, result, error, events, arguments, and the log panel."""

from __future__ import annotations

from typing import Any

from holdfast.job import Job, LogLine, Run, State
from holdfast.pages import Pages
from holdfast.web.access import visible_event, visible_why
from holdfast.web.dashboard.frame import PageRequest
from holdfast.web.dashboard.rows import EXPECTED_SECONDS, hidden, row, run_rows, spent
from holdfast.web.dashboard.words import many

LINES_WITHOUT_SCRIPT = 200
STEPS_MAX = 100
STEP_LINES_MAX = 5_000
EVENTS_SHOWN = 100
LAST_WORDS = 5

pages = Pages("job")


@pages.get("/jobs/{job_id}", "read_jobs")
async def show(page: PageRequest) -> Any:
    job = await page.hf.get(page.place["job_id"], tenant=page.tenant)
    runs: list[Run] = await page.hf.runs(job.id, tenant=page.tenant)
    run = _chosen(page, runs)
    # Whoever reads the page again has scripts, and with them the panel, which reads the log by itself.
    lines = await page.hf.logs(run.run_id, newest=True, limit=LINES_WITHOUT_SCRIPT) if run and not page.again else []
    events = [visible_event(page.caller, event) for event in await page.hf.store.event_list(job_id=job.id, limit=EVENTS_SHOWN)]
    why = visible_why(page.caller, await page.hf.why(job.id)) if job.state is State.QUEUED else None
    shows_args = page.may("read_arguments")
    return page.render(
        "job.html",
        row=row(page, job),
        job=hidden(page, job),
        shows_args=shows_args,
        why=why,
        run=run,
        runs=run_rows(page, runs, run.run_no if run else 0),
        next_run_no=job.run_no + 1 if not job.state.ended and job.state is not State.RUNNING else None,
        steps=await _steps(page, job, run),
        lines=lines,
        last_words=await _last_words(page, job, run),
        events=events,
        usage=await _usage(page, job, runs),
        expected=job.expected_duration or EXPECTED_SECONDS,
        tries=_tries(job),
        panel_acts=" ".join(act for act in ("cancel", "retry") if page.may(act)),
    )


def _tries(job: Job[Any]) -> str:
    """Attempts are numbered through; what counts against the limit starts anew with a retry by hand."""
    counted = f"{job.attempt} of {job.max_attempts}"
    return f"{counted} ({many(job.run_no, 'attempt')} in all)" if job.attempt < job.run_no else counted


async def _usage(page: PageRequest, job: Job[Any], runs: list[Run]) -> Any:
    """What it had of machines, where it ran on any; for those who may see them."""
    if not page.may("read_machines") or not any(run.machine_id for run in runs):
        return None
    return await page.hf.machines.usage_of_job(job.id, tenant=page.tenant)


async def _last_words(page: PageRequest, job: Job[Any], run: Run | None) -> list[LogLine]:
    """Of a job that failed: the last errors in the log of the run that is shown, beside the one that is shown anyway."""
    if run is None or job.state is not State.FAILED:
        return []
    found: list[LogLine] = await page.hf.logs(run.run_id, levels=["error"], newest=True, limit=LAST_WORDS)
    known = job.error_message or job.error_code or ""
    return [line for line in found if not known or known not in line.message]


def _chosen(page: PageRequest, runs: list[Run]) -> Run | None:
    """The run that the address names, else the newest."""
    asked = page.query.get("run", "")
    return next((run for run in runs if str(run.run_no) == asked), runs[0] if runs else None)


async def _steps(page: PageRequest, job: Job[Any], run: Run | None) -> list[dict[str, Any]]:
    """From the log of the run that is shown: when each step spoke first, for how long, and whether its result is remembered."""
    if run is None:
        return []
    remembered = {found["name"] for found in await page.hf.store.shared("step_list", job.id, STEPS_MAX)}
    spoken = await page.hf.store.shared("log_steps", run.run_id, STEP_LINES_MAX)
    begin = run.started_at or page.now
    whole = max(0.001, spent(begin, run.finished_at, page.now) or 0.0)
    steps = []
    for found in spoken:
        seconds = found["duration_ms"] / 1000 if found["duration_ms"] else spent(found["first_at"], found["last_at"], page.now)
        start = min(1.0, max(0.0, (found["first_at"] - begin).total_seconds() / whole))
        steps.append(
            {
                "name": found["step"],
                "lines": found["lines"],
                "seconds": seconds,
                "start": start,
                "part": max(0.004, min(1.0 - start, (seconds or 0.0) / whole)),
                "worst": ("fine", "warning", "error")[found["worst"]],
                "remembered": found["step"] in remembered,
            }
        )
    known = {found["step"] for found in spoken}
    silent = [
        {"name": name, "lines": 0, "seconds": None, "start": 0.0, "part": 0.0, "worst": "fine", "remembered": True}
        for name in sorted(remembered - known)
    ]
    return steps + silent


@pages.post("/jobs/{job_id}/cancel", "cancel")
async def cancel(page: PageRequest) -> Any:
    job = await page.hf.get(page.place["job_id"], tenant=page.tenant)
    running = job.state is State.RUNNING
    what = "It runs: it is asked to stop, and is cancelling until its worker confirms." if running else "It has not begun."
    question = await page.confirmed(
        "Cancel 1 job?", f"Cancels {job.task} {job.id}, which is {job.status}. {what}", button="Cancel the job", danger=True
    )
    if question is not None:
        return question
    found = await page.hf.cancel(job.id, by=page.actor, tenant=page.tenant)
    return page.redirect(f"/jobs/{job.id}", "cancelled" if found.state is State.CANCELLED else "cancelling")


@pages.post("/jobs/{job_id}/retry", "retry")
async def retry(page: PageRequest) -> Any:
    job = await page.hf.get(page.place["job_id"], tenant=page.tenant)
    word = "Replay" if (await page.form()).get("as") == "replay" else "Retry"
    question = await page.confirmed(
        f"{word} 1 job?",
        f"Queues {job.task} {job.id}, which has {job.status}, again: its tries start at 0, its history stays.",
        button=f"{word} the job",
    )
    if question is not None:
        return question
    await page.hf.retry(job.id, by=page.actor, tenant=page.tenant)
    return page.redirect(f"/jobs/{job.id}", "retried")
