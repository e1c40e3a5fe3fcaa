"""Secrets that get into errors and tracebacks are not kept."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import Abort, Holdfast, current
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
