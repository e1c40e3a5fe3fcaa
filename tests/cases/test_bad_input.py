"""What cannot work is refused by a typed error, one clear sentence, and nothing written."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InvalidArguments,
    InvalidJob,
    InvalidOption,
    JobNotFound,
    NotMigrated,
    NotOurDatabase,
    PayloadTooLarge,
    SchemaTooNew,
    UnknownTask,
)
from tests.cases.steps import jobs_stored


async def refused(hf: Holdfast, error: type[HoldfastError], act: Callable[[], Awaitable[Any]]) -> str:
    """The one sentence; and the database is as it was."""
    with pytest.raises(error) as caught:
        await act()
    message = str(caught.value)
    assert message and "\n" not in message and len(message) < 400, message
    assert await jobs_stored(hf) == 0
    return message


ARGUMENTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "wrong type": (("seven", "x"), "work: argument n: expected int, got str"),
    "missing": ((7,), "work: argument text is missing"),
    "too many": ((7, "x", 1, 2), "work: takes 3 positional arguments, got 4"),
    "NaN": ((7, "x", float("nan")), "work: argument extra contains NaN or Infinity"),
    "infinity": ((7, "x", [float("inf")]), "work: argument extra contains NaN or Infinity"),
    "NUL": ((7, "a\0b"), "work: argument text contains a NUL character"),
    "NUL deep inside": ((7, "x", {"a": [{"b\0": 1}]}), "work: argument extra contains a NUL character"),
    "a lone surrogate": ((7, "\ud800"), "work: argument text contains a lone surrogate"),
    "no JSON": ((7, "x", object()), "work: argument extra contains a value of type object"),
}


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", ARGUMENTS)
async def test_arguments_that_cannot_work_are_refused_by_name(hf: Holdfast, what: str) -> None:
    """At enqueue, not first in the worker."""

    @hf.task
    async def work(n: int, text: str, extra: Any = None) -> None: ...

    arguments, words = ARGUMENTS[what]
    assert words in await refused(hf, InvalidArguments, lambda: work.enqueue(*arguments))


async def test_an_unknown_argument_is_refused_by_name(hf: Holdfast) -> None:
    """A typing error in a keyword is found where it is made."""

    @hf.task
    async def work(n: int) -> None: ...

    message = await refused(hf, InvalidArguments, lambda: work.enqueue(n=1, m=2))  # type: ignore[call-arg]
    assert message == "work: there is no argument m"


async def test_a_payload_over_a_mebibyte_is_refused_with_both_sizes(hf: Holdfast) -> None:
    """One byte less is accepted."""

    @hf.task
    async def work(text: str) -> None: ...

    around = len('{"text":""}')
    message = await refused(hf, PayloadTooLarge, lambda: work.enqueue("x" * (1_048_577 - around)))
    assert "1048577 bytes and 1048576 are allowed" in message
    job = await work.enqueue("x" * (1_048_576 - around))
    assert len((await hf.get(job.id)).args["text"]) == 1_048_576 - around


async def test_an_unknown_task_is_refused_with_those_there_are(hf: Holdfast) -> None:
    """By name over hf.enqueue."""

    @hf.task
    async def work() -> None: ...

    assert "Known: work." in await refused(hf, UnknownTask, lambda: hf.enqueue("wrok"))


async def test_a_task_of_another_application_is_refused(hf: Holdfast, database_url: str) -> None:
    """Its jobs would be stored where its own application does not look."""
    other = Holdfast(database_url)

    @other.task
    async def work() -> None: ...

    await refused(hf, UnknownTask, lambda: hf.enqueue_many([work.job()]))
    await other.aclose()


async def test_enqueue_many_with_one_bad_job_writes_none(hf: Holdfast) -> None:
    """All or nothing, also for what is no job at all."""

    @hf.task
    async def work(n: int) -> None: ...

    async def one_bad() -> None:
        await hf.enqueue_many([work.job(1), work.job("two")])  # type: ignore[arg-type]

    await refused(hf, InvalidArguments, one_bad)
    await refused(hf, InvalidOption, lambda: hf.enqueue_many([work.job(1), "work"]))  # type: ignore[list-item]


OPTIONS: dict[str, dict[str, Any]] = {
    "unknown": {"pririty": 1},
    "priority": {"priority": "high"},
    "huge priority": {"priority": 2**40},
    "delay": {"delay": -1},
    "delay for ever": {"delay": 1e300},
    "NaN delay": {"delay": float("nan")},
    "run_at without a zone": {"run_at": datetime(2030, 1, 1)},
    "both times": {"delay": 1, "run_at": datetime.fromisoformat("2030-01-01T00:00:00Z")},
    "attempts": {"max_attempts": 0},
    "tags": {"tags": "one"},
    "a tag with NUL": {"tags": ["a\0"]},
    "meta": {"meta": [1]},
    "meta with NaN": {"meta": {"n": float("nan")}},
    "large meta": {"meta": {"n": "x" * 100_000}},
    "tenant": {"tenant": ""},
    "tenant with NUL": {"tenant": "a\0b"},
    "long tenant": {"tenant": "x" * 201},
    "queue": {"queue": 5},
    "unique": {"unique": "x" * 501},
    "a lone surrogate": {"unique": "\ud800"},
    "order": {"order": ["k"]},
    "on_duplicate": {"on_duplicate": "ignore"},
}


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", OPTIONS)
async def test_options_that_cannot_work_are_refused_by_name(hf: Holdfast, what: str) -> None:
    """The sentence says what would have been right."""

    @hf.task
    async def work() -> None: ...

    async def enqueue() -> None:
        await work.options(**OPTIONS[what]).enqueue()

    message = await refused(hf, InvalidOption, enqueue)
    assert message.startswith("work: ") and next(iter(OPTIONS[what])) in message


async def test_a_connection_that_is_none_is_refused(hf: Holdfast) -> None:
    """`tx=` takes connections; the sentence lists which."""

    @hf.task
    async def work() -> None: ...

    assert "psycopg" in await refused(hf, InvalidOption, lambda: work.options(tx="postgres://…").enqueue())


QUESTIONS: dict[str, Callable[[Holdfast], Awaitable[Any]]] = {
    "limit": lambda hf: hf.jobs(limit=0),
    "large limit": lambda hf: hf.jobs(limit=201),
    "state": lambda hf: hf.jobs(state="lost"),
    "unknown filter": lambda hf: hf.jobs(colour="red"),
    "a time that is none": lambda hf: hf.jobs(after="yesterday"),
    "NUL in a filter": lambda hf: hf.jobs(tenant="a\0b"),
    "a lone surrogate in a filter": lambda hf: hf.jobs(tag="\ud800"),
    "a number for a name": lambda hf: hf.jobs(queue=5),
    "cursor": lambda hf: hf.jobs(cursor="nonsense"),
    "cancel by NUL": lambda hf: hf.cancel("01890000-0000-7000-8000-000000000000", by="a\0"),
    "retry by a surrogate": lambda hf: hf.retry("01890000-0000-7000-8000-000000000000", by="\ud800"),
    "concurrency": lambda hf: hf.run_worker(concurrency=0),
    "concurrency as text": lambda hf: hf.run_worker(concurrency="ten"),  # type: ignore[arg-type]
    "idle": lambda hf: hf.run_worker(exit_when_idle=-1),
    "idle as text": lambda hf: hf.run_worker(exit_when_idle="soon"),  # type: ignore[arg-type]
    "queues as text": lambda hf: hf.run_worker(queues="mail"),
    "a queue that is no text": lambda hf: hf.run_worker(queues=[5]),  # type: ignore[list-item]
    "a queue with NUL": lambda hf: hf.run_worker(queues=["a\0"]),
}


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", QUESTIONS)
async def test_questions_that_make_no_sense_are_refused(hf: Holdfast, what: str) -> None:
    """The same error on both databases, before either is asked."""
    await refused(hf, InvalidOption, lambda: QUESTIONS[what](hf))


@pytest.mark.parametrize("job_id", ["nonsense", "", "a\0b", "\ud800", "01890000-0000-7000-8000-00000000000g", 5, None])
async def test_an_id_that_is_none_is_not_found(hf: Holdfast, job_id: Any) -> None:
    """Nonsense answers like an id that nobody has."""
    for look in (hf.get, hf.cancel, hf.retry, hf.runs):
        await refused(hf, JobNotFound, lambda look=look: look(job_id))  # type: ignore[misc]
    assert await hf.logs(job_id) == [] and await hf.events(job_id) == []


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:", "postgresql:", "http://x", "jobs.db", "", "sqlite://host/x.db"])
def test_a_broken_url_is_refused_when_the_object_is_made(url: str) -> None:
    """Before anything is opened or written."""
    with pytest.raises(ConfigError) as caught:
        Holdfast(url)
    assert "\n" not in str(caught.value)


def test_an_unknown_setting_is_refused_with_the_nearest_name(sqlite_url: str) -> None:
    """A typing error in a keyword is found at start."""
    with pytest.raises(ConfigError, match="did you mean 'heartbeat'"):
        Holdfast(sqlite_url, hartbeat=5)


def test_two_tasks_with_one_name_are_refused(sqlite_url: str) -> None:
    """Otherwise one of them would run the other's jobs."""
    hf = Holdfast(sqlite_url)

    @hf.task(name="same")
    async def one() -> None: ...

    with pytest.raises(ConfigError, match="Two tasks are called same"):

        @hf.task(name="same")
        async def other() -> None: ...


# -- a database that is not ours -----------------------------------------------------------------------------------------


async def nothing_works(hf: Holdfast, error: type[HoldfastError], words: str) -> None:
    @hf.task
    async def work() -> None: ...

    for act in (work.enqueue, hf.jobs, lambda: hf.run_worker(exit_when_idle=0.0)):
        with pytest.raises(error, match=words) as caught:
            await act()
        assert "\n" not in str(caught.value)
    await hf.aclose()


async def test_an_sqlite_file_that_was_never_migrated_says_what_to_run(tmp_path: Path) -> None:
    """And is not made by asking."""
    await nothing_works(Holdfast(f"sqlite:///{tmp_path}/new.db"), NotMigrated, "holdfast migrate")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Not even migrate touches it."""
    file = tmp_path / "notes.txt"
    file.write_text("dear diary " * 1000)
    hf = Holdfast(f"sqlite:///{file}")
    with pytest.raises(NotOurDatabase):
        await hf.migrate()
    await nothing_works(hf, NotOurDatabase, "notes.txt")
    assert file.read_text() == "dear diary " * 1000


async def test_tables_with_our_names_that_we_did_not_make_are_refused(tmp_path: Path) -> None:
    """Somebody else's table is not ours to change."""
    file = tmp_path / "theirs.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE holdfast_jobs (theirs TEXT)")
    connection.close()
    hf = Holdfast(f"sqlite:///{file}")
    with pytest.raises(NotOurDatabase):
        await hf.migrate()
    await nothing_works(hf, NotOurDatabase, "did not make")


async def test_a_postgres_schema_that_we_did_not_make_is_refused(postgres_url: str) -> None:
    """The same there."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
        connection.execute("CREATE SCHEMA holdfast")
        connection.execute("CREATE TABLE holdfast.jobs (theirs text)")
    hf = Holdfast(postgres_url)
    with pytest.raises(NotOurDatabase):
        await hf.migrate()
    await nothing_works(hf, NotOurDatabase, "did not make")


async def test_a_postgres_database_that_was_never_migrated_says_what_to_run(postgres_url: str) -> None:
    """Before the first statement of ours reaches it."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")
    await nothing_works(Holdfast(postgres_url), NotMigrated, "holdfast migrate")


async def test_a_schema_newer_than_the_code_is_refused(database_url: str, store_kind: str) -> None:
    """An old program must not work on what it does not understand; migrate does not go back either."""
    table = "holdfast_migrations" if store_kind == "sqlite" else "holdfast.migrations"
    before = Holdfast(database_url)
    async with before.transaction() as tx:
        moment = "0" if store_kind == "sqlite" else "now()"
        await tx.execute(f"INSERT INTO {table} (component, version, name, applied_at) VALUES ('core', 999, 'future', {moment})")
    await before.aclose()
    hf = Holdfast(database_url)
    with pytest.raises(SchemaTooNew, match="upgrade the holdfast package"):
        await hf.migrate()
    await nothing_works(hf, SchemaTooNew, "999")


def test_every_refusal_is_one_tree() -> None:
    """A caller can catch all of them by one name."""
    for error in (InvalidArguments, PayloadTooLarge, InvalidOption, UnknownTask):
        assert issubclass(error, InvalidJob) and issubclass(error, HoldfastError)
