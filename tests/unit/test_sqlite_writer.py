"""The SQLite store's writer: many operations share one commit, and none of them pays for another."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import StorageUnavailable
from holdfast.store.sqlite.connection import open_connection
from holdfast.store.sqlite.session import Session
from holdfast.store.sqlite.writer import Writer
from tests.support.apart import run_apart


class Told:
    """Remembers the wake-ups of each commit."""

    def __init__(self) -> None:
        self.wakes: list[set[str]] = []

    def __call__(self, wakes: set[str]) -> None:
        self.wakes.append(wakes)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "writer.db")
    connection = open_connection(path, create=True)
    connection.execute("CREATE TABLE notes (text TEXT NOT NULL)")
    connection.close()
    return path


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def writer(path: str, told: Told) -> Iterator[Writer]:
    writer = Writer(path, lambda: open_connection(path), lambda connection: Session(connection, now=0.0), told)
    yield writer
    writer.close()


def note(text: str | None, *, then: Exception | None = None) -> Callable[[Session], str | None]:
    def operation(session: Session) -> str | None:
        session.connection.execute("INSERT INTO notes VALUES (?)", (text,))
        session.wakes.add(f"job:{text}")
        if then is not None:
            raise then
        return text

    return operation


def notes_in(path: str) -> list[str]:
    connection = sqlite3.connect(path)
    found = [row[0] for row in connection.execute("SELECT text FROM notes ORDER BY rowid")]
    connection.close()
    return found


async def in_one_commit(writer: Writer, *operations: Callable[[Session], object]) -> list[object]:
    """Holds the thread up until all of them are waiting, so that they are taken together."""
    async with thread_held_up(writer):
        waiting = [asyncio.ensure_future(writer.run(operation)) for operation in operations]
        await asyncio.sleep(0)
    return await asyncio.gather(*waiting, return_exceptions=True)


@asynccontextmanager
async def thread_held_up(writer: Writer) -> AsyncIterator[None]:
    begun, go_on = threading.Event(), threading.Event()

    def wait_inside(session: Session) -> None:
        begun.set()
        go_on.wait(60)

    held = asyncio.ensure_future(writer.run(wait_inside))
    assert await asyncio.to_thread(begun.wait, 60)
    yield
    go_on.set()
    await held


async def test_a_failing_operation_does_not_undo_its_neighbours(writer: Writer, path: str) -> None:
    """Of three operations in one commit the middle one fails: the others are kept, nothing of it is."""
    refusal = ValueError("no")
    answers = await in_one_commit(writer, note("first"), note("second", then=refusal), note("third"))
    assert ["first", refusal, "third"] == answers
    assert notes_in(path) == ["first", "third"]


async def test_a_statement_that_sqlite_refuses_does_not_undo_its_neighbours(writer: Writer, path: str) -> None:
    """An error of the database itself stays inside its operation too."""
    answers = await in_one_commit(writer, note("first"), note(None), note("third"))
    assert [answers[0], answers[2]] == ["first", "third"]
    assert "NOT NULL" in str(answers[1])
    assert notes_in(path) == ["first", "third"]


async def test_only_what_was_committed_wakes_anybody(writer: Writer, told: Told) -> None:
    """An operation that failed leaves no wake-up behind, and the others share one."""
    await in_one_commit(writer, note("a"), note("b", then=ValueError()), note("c"))
    assert [{"job:a", "job:c"}] == told.wakes


async def test_nobody_is_answered_when_the_commit_fails(writer: Writer, path: str) -> None:
    """A commit that fails fails every operation in it, with a typed error, and the next one works again."""

    def lose_the_transaction(session: Session) -> None:
        session.connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("the disk is gone")

    answers = await in_one_commit(writer, note("first"), lose_the_transaction, note("third"))
    assert all(isinstance(answer, Exception) for answer in answers)
    assert notes_in(path) == []
    assert await writer.run(note("later")) == "later"


async def test_close_finishes_what_is_queued_and_can_be_called_twice(writer: Writer, path: str) -> None:
    """What was asked before the close is done; what is asked after it is refused."""
    waiting = [asyncio.ensure_future(writer.run(note(str(number)))) for number in range(20)]
    await asyncio.sleep(0)
    await asyncio.to_thread(writer.close)
    await asyncio.to_thread(writer.close)
    assert [str(number) for number in range(20)] == await asyncio.gather(*waiting) == notes_in(path)
    with pytest.raises(StorageUnavailable, match="closed"):
        await writer.run(note("late"))


async def test_a_cancelled_operation_that_has_not_begun_is_left_out(writer: Writer, path: str) -> None:
    """Whoever gives up before the writer comes to it leaves nothing behind."""
    async with thread_held_up(writer):
        given_up = asyncio.ensure_future(writer.run(note("never")))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
    assert await writer.run(note("after")) == "after"
    assert notes_in(path) == ["after"]


def test_one_writer_serves_event_loops_that_come_and_go(writer: Writer, path: str) -> None:
    """Each caller is answered on its own loop, also after an earlier loop has ended."""
    answers = []

    async def write(text: str) -> None:
        answers.append(await writer.run(note(text)))

    run_apart(write("a"))
    run_apart(write("b"))
    assert answers == ["a", "b"]
    assert notes_in(path) == ["a", "b"]


async def test_an_operation_without_memory_is_told_so_and_the_writer_goes_on(path: str, told: Told) -> None:
    """Be it that the file could not even be opened: a writer that is gone would answer nobody any more."""
    failures: list[MemoryError] = [MemoryError()]

    def connect() -> sqlite3.Connection:
        if failures:
            raise failures.pop()
        return open_connection(path)

    writer = Writer(path, connect, lambda connection: Session(connection, now=0.0), told)
    try:
        with pytest.raises(StorageUnavailable, match="this process has no memory left"):
            await asyncio.wait_for(writer.run(note("unopened")), 40)
        with pytest.raises(StorageUnavailable, match="this process has no memory left"):
            await asyncio.wait_for(writer.run(note("refused", then=MemoryError())), 40)
        await asyncio.wait_for(writer.run(note("written")), 40)
    finally:
        writer.close()
    assert notes_in(path) == ["written"]


async def test_operations_of_a_writer_that_dies_fail_and_the_next_ones_are_done(writer: Writer, path: str) -> None:
    """Those in its hands and those in the queue get a typed error; a new thread takes over."""

    def die(session: Session) -> None:
        raise SystemExit

    answers = await asyncio.wait_for(in_one_commit(writer, note("first"), die, note("third")), 40)
    assert [type(answer) for answer in answers] == [StorageUnavailable] * 3
    assert "The writer thread" in str(answers[0])
    assert await asyncio.wait_for(writer.run(note("later")), 40) == "later"
    assert notes_in(path) == ["later"]
