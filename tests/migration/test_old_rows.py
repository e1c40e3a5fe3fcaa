"""Data of the first schema, and of every one since, survives all later migrations, and work goes on with it."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.store.named_sql import load_migrations
from tests.conformance.scene import reap
from tests.conftest import open_store
from tests.support.source import ROOT

ROWS = ROOT / "tests" / "fixtures" / "migration" / "rows.sql"
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


def words_of(kind: str) -> str:
    text = ROWS.read_text(encoding="utf-8")
    for word, meaning in MOMENTS[kind].items():
        text = text.replace(word, meaning)
    return text.replace(" Tjobs", f" {prefix(kind)}jobs").replace("INTO T", f"INTO {prefix(kind)}")


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


async def check_upgrade(kind: str, url: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    await migrate_to(kind, url, number, monkeypatch)
    run(kind, url, words_of(kind))
    tables = columns(kind, url)
    before = contents(kind, url, tables)
    hf = Holdfast(url)
    try:
        assert await hf.migrate() or number == max(one[0] for one in load_migrations(f"holdfast.store.{kind}"))
        now = columns(kind, url)
        kept = {name: [column for column in names if column in now.get(name, [])] for name, names in tables.items()}
        assert kept == tables, f"from {number:04}: columns of old workers are gone"
        assert contents(kind, url, tables) == before, f"from {number:04}"
        await check_work_goes_on(hf)
    finally:
        await hf.aclose()


async def check_work_goes_on(hf: Holdfast) -> None:
    """What waited and what was lost is done, the rest stays as it was, and is read."""

    @hf.task(name="greet", queue="mail")
    async def greet(name: str) -> str:
        return f"hello {name}"

    assert [lost.id for lost in await reap(hf.store)] == [f"{ID}2"]
    await hf.run_worker(queues=["mail"], exit_when_idle=0.0)
    done = [await hf.get(f"{ID}{number}") for number in (1, 3)]
    assert [(job.state, await job.result()) for job in done] == [(State.COMPLETED, "hello Ana"), (State.COMPLETED, "hello Cem")]
    # Its next attempt is due after a random pause, which may be over already.
    assert (await hf.get(f"{ID}2")).state in (State.QUEUED, State.COMPLETED)
    states = [(await hf.get(f"{ID}{number}")).state for number in (4, 5, 6)]
    assert states == [State.FAILED, State.CANCELLED, State.QUEUED]
    assert [line.message for line in await hf.logs("10000000-0000-7000-8000-000000000003")] == ["said before"]
    assert (await hf.retry(f"{ID}4")).state is State.QUEUED


@pytest.mark.case("D36")
async def test_rows_of_every_earlier_schema_survive_and_work_goes_on(
    store_kind: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From each number to the newest: every row and column is there as before, and waiting and lost jobs are done."""
    for number, _, _ in load_migrations(f"holdfast.store.{store_kind}"):
        url = database_url
        if store_kind == "sqlite":
            url = f"sqlite:///{tmp_path / f'{number}.db'}"
        else:
            run("postgres", url, "DROP SCHEMA holdfast CASCADE")
        await check_upgrade(store_kind, url, number, monkeypatch)
