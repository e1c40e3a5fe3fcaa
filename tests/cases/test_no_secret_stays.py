"""Secrets that tasks and people give away are in no table, in no answer of the command line and on no console."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, Job
from tests.apps import leaky
from tests.support.processes import Processes

APP = "tests.apps.leaky:hf"
ENVIRONMENT = {leaky.PASSWORD_VARIABLE: leaky.PASSWORD}
TASKS = ("leak_result", "leak_result_isolated", "leak_error", "leak_code", "leak_to_the_console")


@pytest.fixture
async def tasks(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModuleType]:
    """The tasks of tests/apps/leaky.py on this test's database."""
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    sys.modules.pop(leaky.__name__, None)
    module = importlib.import_module(leaky.__name__)
    yield module
    await module.hf.aclose()


async def everything_stored(url: str) -> dict[str, str]:
    """Table -> all of its rows as one text."""
    if url.startswith("sqlite:///"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: repr(connection.execute(f'SELECT * FROM "{name}"').fetchall()) for name in names}
        connection.close()
        return found
    server = await asyncpg.connect(url)
    names = [row[0] for row in await server.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast'")]
    found = {name: repr([tuple(row) for row in await server.fetch(f'SELECT * FROM holdfast."{name}"')]) for name in names}
    await server.close()
    return found


def secrets_in(text: str) -> list[str]:
    """Where a secret is still to be read, with what stands around it."""
    spellings = (leaky.BODY, leaky.PASSWORD, leaky.PASSWORD.replace('"', '\\"'), leaky.PASSWORD.replace('"', '\\\\"'))
    places = [text.find(spelling) for spelling in spellings]
    return [text[max(0, place - 60) : place + 40] for place in places if place >= 0]


async def people_leak_too(hf: Holdfast) -> list[Job[Any]]:
    """Names and notes that hold a secret, at every door that takes one."""
    waiting = hf.task_named("wait_for_nothing").options(
        meta={"note": leaky.clone_url("meta"), "api_key": f"p{leaky.BODY}"},
        actor=leaky.token("actor"),
        enqueued_by=leaky.token("enqueuedby"),
    )
    job = await waiting.enqueue()
    await hf.cancel(job.id, by=leaky.token("cancelledby"))
    await hf.retry(job.id, by=leaky.token("retriedby"))
    await hf.tenants.pause("acme", by=leaky.token("pausedby"))
    await hf.tenants.set("acme", limit=2, by=leaky.token("setby"))
    await hf.queues.set("mail", limit=2, by=leaky.token("queueby"))
    await hf.plans.set("own", running=1, queue_depth=1, by=leaky.token("planby"))
    return [job]


@pytest.mark.case("D37")
async def test_no_table_no_answer_and_no_console_holds_a_secret(
    tasks: ModuleType, database_url: str, processes: Processes
) -> None:
    """In log, error, traceback, result, step, event, metadata, progress, and in the names of people."""
    jobs = await people_leak_too(tasks.hf)
    jobs += [await tasks.hf.enqueue(name) for name in TASKS]
    worker = processes.worker("--exit-when-idle", "0.5", app=APP, database_url=database_url, env=ENVIRONMENT)
    assert await worker.exited(60) == 0, worker.output

    stored = await everything_stored(database_url)
    assert {table: secrets_in(rows) for table, rows in stored.items() if secrets_in(rows)} == {}
    assert "[REDACTED]" in worker.output and secrets_in(worker.output) == []
    states = {job.task: (await tasks.hf.get(job.id)).state.value for job in jobs}
    ends = {"leak_error": "failed", "leak_code": "failed"}
    assert states == {name: ends.get(name, "completed") for name in (*TASKS, "wait_for_nothing")}

    questions = [["jobs", "show", job.id, "--json"] for job in jobs]
    questions += [["jobs", what, job.id] for job in jobs[:4] for what in ("show", "logs")]
    questions += [["jobs", "list"], ["events"], ["events", "--json"], ["tenants", "show", "acme"]]
    for question in questions:
        answer = processes.holdfast(*question, app=APP, database_url=database_url)
        assert await answer.exited(60) == 0, answer.output
        assert secrets_in(answer.output) == [], question


@pytest.mark.case("D37")
async def test_arguments_are_kept_as_they_are_but_not_printed(
    tasks: ModuleType, database_url: str, processes: Processes
) -> None:
    """A task needs what it was given; whoever looks at the job does not."""
    hf: Holdfast = tasks.hf

    @hf.task
    async def clone(url: str, password: str) -> None: ...

    job = await clone.enqueue(leaky.clone_url("argument"), "opensesame")
    assert (await hf.get(job.id)).args == {"url": leaky.clone_url("argument"), "password": "opensesame"}
    for question in (["show", job.id], ["show", job.id, "--json"], ["list", "--json"]):
        answer = processes.holdfast("jobs", *question, app=APP, database_url=database_url)
        assert await answer.exited(60) == 0
        assert "clone" in answer.output and secrets_in(answer.output) == [] and "opensesame" not in answer.output
