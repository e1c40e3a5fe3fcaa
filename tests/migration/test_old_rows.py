"""Data of the first schema, and of every one since, survives all later migrations, and work goes on with it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.clock import ManualClock
from holdfast.people.keys import hash_of
from holdfast.people.sessions import Sessions
from holdfast.store.named_sql import load_migrations
from tests.conformance.scene import reap
from tests.conftest import open_store
from tests.support.source import ROOT

FIXTURES = ROOT / "tests" / "fixtures" / "migration"
KEY = "hf_" + "k" * 43
SESSION = "s" * 43
ID = "00000000-0000-7000-8000-00000000000"
MOMENTS = {
    "sqlite": {"NOW": "unixepoch()", "PAST": "unixepoch() - 3600", "LATER": "unixepoch() + 86400", "NAMES": "'[\"mail\"]'"},
    "postgres": {
        "NOW": "now()",
        "PAST": "now() - interval '1 hour'",
        "LATER": "now() + interval '1 day'",
        "NAMES": "'{mail}'",
    },
}


def words_of(kind: str, text: str) -> str:
    words = {**MOMENTS[kind], "SESSIONHASH": hash_of(SESSION), "KEYHASH": hash_of(KEY)}
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text.replace("INTO T", f"INTO {prefix(kind)}")


def rows_of_later_tables() -> dict[str, str]:
    """By the name of the table that they go into."""
    pieces = re.split(r"^-- table: (\w+)\n", (FIXTURES / "later_rows.sql").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def fill(kind: str, url: str, tables: Collection[str]) -> None:
    """These tables, as whoever worked with them left them."""
    bare = {table.removeprefix("holdfast_") for table in tables}
    if "jobs" in bare:
        run(kind, url, words_of(kind, (FIXTURES / "rows.sql").read_text(encoding="utf-8")))
    for table, rows in rows_of_later_tables().items():
        if table in bare:
            run(kind, url, words_of(kind, rows))
    empty = [table for table, rows in contents(kind, url, columns(kind, url)).items() if not rows]
    assert empty == [], "a table without a row proves nothing: give it one in later_rows.sql"


def prefix(kind: str) -> str:
    return "holdfast." if kind == "postgres" else "holdfast_"


def fetched(kind: str, url: str, sql: str) -> list[tuple[Any, ...]]:
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()
    with psycopg.connect(url) as server:
        return server.execute(sql.encode()).fetchall()


def run(kind: str, url: str, script: str) -> None:
    if kind == "sqlite":
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(script)
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as server:
            server.execute(script.encode())


def columns(kind: str, url: str) -> dict[str, list[str]]:
    """Of every table of ours, now."""
    if kind == "sqlite":
        listed = "SELECT m.name, p.name FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'"
        found = [row for row in fetched(kind, url, listed) if row[0].startswith("holdfast_")]
    else:
        listed = "SELECT table_name, column_name FROM information_schema.columns c JOIN information_schema.tables t"
        found = fetched(
            kind,
            url,
            f"{listed} USING (table_schema, table_name) WHERE table_schema = 'holdfast' AND table_type = 'BASE TABLE'",
        )
    tables: dict[str, list[str]] = {}
    for table, column in found:
        tables.setdefault(table, []).append(column)
    return {name: sorted(names) for name, names in tables.items() if not name.endswith("migrations")}


def contents(kind: str, url: str, tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """Every row, with the columns that there were."""
    where = "holdfast." if kind == "postgres" else ""
    return {
        table: sorted(map(repr, fetched(kind, url, f"SELECT {', '.join(names)} FROM {where}{table}")))
        for table, names in tables.items()
    }


async def migrate_to(kind: str, url: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the code of that time left it: its tables alone."""
    migrate = import_module(f"holdfast.store.{kind}.migrate")
    with monkeypatch.context() as before:
        before.setattr(migrate, "MIGRATIONS", [one for one in migrate.MIGRATIONS if one[0] <= number])
        before.setattr(migrate, "VERSION", number)
        if kind == "postgres":
            before.setattr(migrate, "function_scripts", list)  # today's functions may need tables of today
        store = open_store(kind, url)
        await store.schema_migrate()
        await store.close()


def opened(url: str) -> Holdfast:
    """With a clock of its own: by PostgreSQL's, nothing is lost while the server itself has just started."""
    return Holdfast(url, clock=ManualClock(datetime.now(UTC)))


async def check_upgrade(kind: str, url: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate_to(kind, url, number, monkeypatch)
    tables = columns(kind, url)
    fill(kind, url, tables)
    before = contents(kind, url, tables)
    hf = opened(url)
    try:
        assert await hf.migrate() or number == max(one[0] for one in load_migrations(f"holdfast.store.{kind}"))
        check_kept(kind, url, tables, before, f"from {number:04}")
        await check_work_goes_on(hf)
        await check_things_are_read(hf, {table.removeprefix("holdfast_") for table in tables})
    finally:
        await hf.aclose()


def check_kept(kind: str, url: str, tables: dict[str, list[str]], before: dict[str, list[str]], when: str) -> None:
    now = columns(kind, url)
    kept = {name: [column for column in names if column in now.get(name, [])] for name, names in tables.items()}
    assert kept == tables, f"{when}: columns of old workers are gone"
    found = contents(kind, url, tables)
    assert {name: set(rows) - set(found[name]) for name, rows in before.items() if set(rows) - set(found[name])} == {}, when


async def check_work_goes_on(hf: Holdfast) -> None:
    """What waited and what was lost is done, in its order; the rest stays as it was, and is read."""

    @hf.task(name="greet", queue="mail")
    async def greet(name: str) -> str:
        return f"hello {name}"

    assert {(lost.id, lost.state) for lost in await reap(hf.store)} == {(f"{ID}2", State.QUEUED), (f"{ID}8", State.CANCELLED)}
    await hf.run_worker(queues=["mail"], exit_when_idle=0.0)
    done = [await hf.get(f"{ID}{number}") for number in (1, 3, 7)]
    assert [(job.state, await job.result()) for job in done] == [
        (State.COMPLETED, f"hello {name}") for name in ("Ana", "Cem", "Gil")
    ]
    assert done[0].finished_at is not None and done[2].started_at is not None and done[0].finished_at <= done[2].started_at
    assert done[2].attempt == 2, "attempts of before count on"
    # Its next attempt is due after a random pause, which may be over already.
    assert (await hf.get(f"{ID}2")).state in (State.QUEUED, State.COMPLETED)
    states = [(await hf.get(f"{ID}{number}")).state for number in (4, 5, 6)]
    assert states == [State.FAILED, State.CANCELLED, State.QUEUED]
    assert [line.message for line in await hf.logs("10000000-0000-7000-8000-000000000003")] == ["said before"]
    assert [(run.run_no, run.outcome) for run in await hf.runs(f"{ID}4")][-1] == (1, "failed")
    assert "job.failed" in {event.type for event in await hf.events(tenant="acme")}
    assert (await hf.retry(f"{ID}4")).state is State.QUEUED


async def check_things_are_read(hf: Holdfast, tables: Collection[str]) -> None:
    """By the code of today, for each table that was there."""
    acme = await hf.tenants.get("acme")
    checks: dict[str, Callable[[], Awaitable[bool]]] = {
        "tenants": lambda: _is((acme.plan, acme.limit), ("team", 3)),
        "queues": lambda: _of(hf.queues.get("post"), lambda queue: (queue.limit, queue.paused_by) == (7, "ana")),
        "members": lambda: _of(hf.members.list("acme"), lambda found: found[0].role == "owner"),
        "projects": lambda: _of(hf.projects.list("acme"), lambda found: found[0].name == "Web"),
        "keys": lambda: _of(hf.keys.valid(KEY), lambda key: key is not None and key.tenant == "acme"),
        "sessions": lambda: _of(Sessions(hf).valid(SESSION), lambda found: found is not None and found.key_id == "0a"),
        "schedules": lambda: _of(hf.schedules.get("nightly", tenant="acme"), lambda one: one.next_at is not None),
        "budgets": lambda: _of(hf.budgets.get("acme", "ai"), lambda budget: budget.cents == 4950),
        "breakers": lambda: _of(hf.breakers.list(), lambda found: found[0].reason == "it answers 503"),
        "webhooks": lambda: _of(
            hf.webhooks.get("wh_0123456789abcdef"), lambda webhook: webhook.url == "https://example.com/hook"
        ),
        "batches": lambda: _of(hf.batches.get("b1"), lambda batch: batch.total == 2),
    }
    assert [table for table, check in checks.items() if table in tables and not await check()] == []


async def _is(found: object, expected: object) -> bool:
    return found == expected


async def _of(asked: Awaitable[Any], holds: Callable[[Any], bool]) -> bool:
    return holds(await asked)


def fresh_url(kind: str, url: str, tmp_path: Path, number: int) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / f'{number}.db'}"
    run("postgres", url, "DROP SCHEMA holdfast CASCADE")
    return url


@pytest.mark.case("D36")
async def test_rows_of_every_earlier_schema_survive_and_work_goes_on(
    store_kind: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each number to the newest: every row and column is there as before, and waiting and lost jobs are done."""
    for number, _, _ in load_migrations(f"holdfast.store.{store_kind}"):
        url = fresh_url(store_kind, database_url, tmp_path, number)
        await check_upgrade(store_kind, url, number, monkeypatch)


@pytest.mark.case("D36")
async def test_rows_of_the_first_schema_survive_each_later_migration_by_itself(
    store_kind: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that takes part in every release: after each step all that was there is there, and new tables get rows too."""
    url = fresh_url(store_kind, database_url, tmp_path, 0)
    known: set[str] = set()
    for number, name, _ in sorted(load_migrations(f"holdfast.store.{store_kind}")):
        tables = columns(store_kind, url) if known else {}
        before = contents(store_kind, url, tables)
        await migrate_to(store_kind, url, number, monkeypatch)
        check_kept(store_kind, url, tables, before, f"by {number:04}_{name}")
        fill(store_kind, url, set(columns(store_kind, url)) - known)
        known = set(columns(store_kind, url))
    hf = opened(url)
    try:
        await hf.migrate()
        await check_work_goes_on(hf)
        await check_things_are_read(hf, {table.removeprefix("holdfast_") for table in known})
    finally:
        await hf.aclose()


@pytest.mark.case("D36")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_migration_that_was_released_is_never_edited(kind: str, previous_release: Path) -> None:
    """Databases that have it would differ from those that get it now."""
    ours, theirs = (root / "holdfast" / "store" / kind / "migrations" for root in (ROOT / "src", previous_release))
    released = {path.name: path.read_text(encoding="utf-8") for path in theirs.glob("*.sql")}
    assert len(released) > 5
    assert {name: (ours / name).read_text(encoding="utf-8") for name in released} == released
