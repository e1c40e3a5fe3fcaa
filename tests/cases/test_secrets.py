"""Secrets that get into errors and tracebacks are not kept."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import Abort, Holdfast, State, current, step, step_sync
from holdfast import redact as redaction
from holdfast.errors import ResultTooLarge
from holdfast.redact import refresh_environment
from tests.cases.steps import drain, lines

TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
URL = f"https://x-access-token:{TOKEN}@github.com/acme/app.git"


async def everything_about(hf: Holdfast, job_id: str) -> str:
    """All that the database knows of a job, as one text."""
    job = await hf.get(job_id)
    runs = await hf.runs(job_id)
    logs = [await hf.logs(run.run_id) for run in runs]
    return repr((job.as_dict(), runs, logs, await hf.events(job_id)))


@pytest.mark.case("D37", "logger-6")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_token_in_an_error_is_redacted_in_message_traceback_history_and_event(hf: Holdfast, kind: str) -> None:
    """Also where the exception was caused by another one that carries it, and in what the task logged."""

    def leak() -> None:
        current().log.info(f"cloning {URL}", url=URL, token="short", headers={"Authorization": f"Bearer {TOKEN}"})
        current().progress(0.1, f"cloning {URL}")
        try:
            raise ConnectionError(f"fatal: could not read from {URL}")
        except ConnectionError as error:
            raise ValueError(f"clone of {URL} failed") from error

    @hf.task(max_attempts=2, backoff=(0,))
    async def leak_async() -> None:
        leak()

    @hf.task(max_attempts=2, backoff=(0,))
    def leak_in_thread() -> None:
        leak()

    job = await (leak_async if kind == "async" else leak_in_thread).enqueue()
    await drain(hf)
    known = await everything_about(hf, job.id)
    assert TOKEN not in known and "short" not in known
    assert "clone of https://[REDACTED]@github.com/acme/app.git failed" in known
    assert "could not read from https://[REDACTED]@github.com" in known


@pytest.mark.case("D37")
async def test_a_secret_of_the_environment_is_redacted_wherever_it_appears(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password that looks like nothing at all is known by the variable it is in."""
    monkeypatch.setenv("STRIPE_API_KEY", "correct horse battery")
    refresh_environment()

    @hf.task
    async def fail() -> None:
        raise Abort("refused: correct horse battery", code="correct horse battery")

    job = await fail.enqueue()
    await drain(hf)
    monkeypatch.undo()
    refresh_environment()
    assert "correct horse battery" not in await everything_about(hf, job.id)


@pytest.mark.case("D37")
async def test_a_secret_is_not_left_in_half_where_a_long_message_is_cut(hf: Holdfast) -> None:
    """Wherever the cut falls."""

    @hf.task(max_attempts=1)
    async def fail(before: int) -> None:
        current().log.info("x" * (16_384 - before) + " " + URL)
        raise ValueError("x" * (2_000 - before) + " " + URL)

    jobs = await hf.enqueue_many([fail.job(before) for before in range(0, 120, 7)])
    await drain(hf)
    for job in jobs:
        assert TOKEN[:12] not in await everything_about(hf, job.id)


async def test_the_working_directory_is_not_a_secret(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell's PWD is no password: paths in tracebacks stay readable."""
    monkeypatch.setenv("PWD", os.getcwd())
    refresh_environment()

    @hf.task(max_attempts=1)
    async def fail() -> Any:
        raise ValueError("no")

    job = await fail.enqueue()
    await drain(hf)
    (line,) = await lines(hf, job)
    assert line.metadata is not None and __file__ in line.metadata["traceback"]


@pytest.mark.case("D37")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_secret_in_a_steps_result_is_not_kept_and_the_log_says_what_to_do(hf: Holdfast, kind: str) -> None:
    """Both attempts see the same, so that nothing works once and fails later."""
    seen: list[Any] = []

    def login() -> dict[str, str]:
        return {"token": "short", "user": "me"}

    @hf.task(max_attempts=2, backoff=(0,))
    async def work_async() -> None:
        seen.append(await step("login", login))
        raise ValueError

    @hf.task(max_attempts=2, backoff=(0,))
    def work_in_thread() -> None:
        seen.append(step_sync("login", login))
        raise ValueError

    job = await (work_async if kind == "async" else work_in_thread).enqueue()
    await drain(hf)
    assert seen == [{"token": "[REDACTED]", "user": "me"}] * 2
    first, second = [await hf.logs(run.run_id) for run in reversed(await hf.runs(job.id))]
    warning = next(line for line in first if line.step == "login")
    assert warning.level == "warning" and "Return a reference instead" in warning.message
    assert not any(line.step == "login" for line in second)


@pytest.mark.case("D37")
async def test_a_secret_in_a_result_that_is_completed_in_a_transaction_is_redacted(hf: Holdfast) -> None:
    """The other way in which a result reaches the database."""

    @hf.task
    async def work() -> None:
        async with hf.transaction() as tx:
            await current().complete({"url": URL, "rows": 3}, tx=tx)

    job = await work.enqueue()
    await drain(hf)
    assert (await hf.get(job.id)).output == {"url": "https://[REDACTED]@github.com/acme/app.git", "rows": 3}


async def test_what_a_step_or_complete_keeps_may_be_no_larger_than_a_result(database_url: str) -> None:
    """It fails the job at once: another attempt would bring the same."""
    hf = Holdfast(database_url, result_bytes_max=1000)
    met: list[str] = []

    @hf.task
    async def too_much(way: str) -> None:
        try:
            if way == "step":
                await step("read", lambda: "x" * 2000)
            async with hf.transaction() as tx:
                await current().complete("x" * 2000, tx=tx)
        except ResultTooLarge as error:
            met.append(str(error))
            raise

    jobs = [await too_much.enqueue(way) for way in ("step", "complete")]
    await drain(hf, concurrency=1)
    found = [await hf.get(job.id) for job in jobs]
    await hf.aclose()
    assert [(job.state, job.error_code, job.attempt) for job in found] == [(State.FAILED, "result_too_large", 1)] * 2
    limit = "takes 2002 bytes and 1000 are allowed; store it and return its key"
    assert met == [f"step read: the result {limit}", f"complete: the result {limit}"]


@pytest.mark.case("D37")
async def test_a_pattern_of_the_users_own_holds_everywhere(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given once, as a setting."""
    monkeypatch.setattr(redaction, "_user_patterns", ())
    hf = Holdfast(database_url, redact=[r"cust-\d+"])

    @hf.task(max_attempts=1)
    async def work(fail: bool) -> str:
        current().log.info("for cust-123", customer="cust-123")
        if fail:
            raise ValueError("no cust-123")
        return "cust-123"

    jobs = [await work.enqueue(fail) for fail in (True, False)]
    await drain(hf)
    await hf.cancel((await work.options(delay=60).enqueue(True)).id, by="cust-123")
    known = [await everything_about(hf, job.id) for job in jobs]
    await hf.aclose()
    assert not any("cust-123" in text for text in known) and all("[REDACTED]" in text for text in known)
