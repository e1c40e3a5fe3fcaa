"""Adopting a table: shown first, refused by name, and no name is ever run as SQL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.adopt import AdoptedTable, setup
from holdfast.cli import main
from holdfast.clock import ManualClock
from holdfast.errors import ConfigError, NotFound
from tests.support.adopted import JOBS, Team, make_tables
from tests.support.apart import run_apart


@pytest.fixture
async def hf_with_tables(hf_at: Holdfast) -> Holdfast:
    await make_tables(hf_at)
    return hf_at


async def test_adopting_shows_first_then_adds_what_is_missing_once(hf_with_tables: Holdfast) -> None:
    """The plan changes nothing; afterwards there is nothing left to plan, and the rows are as they were."""
    await Team(hf_with_tables, JOBS).add(1)
    planned = await setup.plan(hf_with_tables, JOBS)
    assert len([sql for sql in planned if "ADD COLUMN" in sql]) == 6
    assert any('("status", "lease_expires_at")' in sql for sql in planned)
    assert await setup.stored(hf_with_tables.store) == []
    assert await setup.plan(hf_with_tables, JOBS) == planned
    assert await setup.adopt(hf_with_tables, JOBS) == planned
    assert await setup.adopt(hf_with_tables, JOBS) == []
    assert [one.table for one in await setup.stored(hf_with_tables.store)] == ["jobs"]
    assert (await Team(hf_with_tables, JOBS).rows())[1]["status"] == "queued"
    await setup.forget(hf_with_tables, "jobs")
    with pytest.raises(NotFound):
        await setup.forget(hf_with_tables, "jobs")


@pytest.mark.parametrize(
    ("adopted", "message"),
    [
        (AdoptedTable("job"), r"no table 'job'.*did you mean 'jobs'"),
        (AdoptedTable('jobs"; DROP TABLE jobs; --'), "There is no table"),
        (AdoptedTable("jobs", columns={"status": "stat"}), "no column 'stat'; did you mean 'status'"),
        (AdoptedTable("jobs", columns={"lease_expires_at": 'x" text; DROP TABLE jobs; --'}), "no column"),
        (AdoptedTable("asr jobs"), "no column 'id'"),
        (AdoptedTable("jobs", events="asr jobs"), "cannot take events"),
    ],
)
async def test_a_wrong_name_is_refused_before_anything_is_changed(
    hf_with_tables: Holdfast, adopted: AdoptedTable, message: str
) -> None:
    """By a sentence that names it; nothing is added, nothing is stored, and no name is run as SQL."""
    before = await setup.plan(hf_with_tables, JOBS)
    for attempt in (setup.plan, setup.adopt):
        with pytest.raises(ConfigError, match=message):
            await attempt(hf_with_tables, adopted)
    assert await setup.plan(hf_with_tables, JOBS) == before
    assert await setup.stored(hf_with_tables.store) == []


async def test_names_that_look_like_sql_are_names(hf_at: Holdfast, clock: ManualClock) -> None:
    """Quotes, semicolons, placeholders: adopted, worked and reaped like any other."""
    kind = "INTEGER" if hf_at.store.name == "sqlite" else "bigint"
    async with hf_at.transaction() as tx:
        await tx.execute(f'CREATE TABLE "x""; DROP TABLE y; --$1 {{id}}" ("i d" {kind} PRIMARY KEY, "st""at {{table}}" text)')
    adopted = AdoptedTable(
        'x"; DROP TABLE y; --$1 {id}', columns={"id": "i d", "status": 'st"at {table}'}, events="ev;$2 {lock}"
    )
    await setup.adopt(hf_at, adopted)
    async with hf_at.transaction() as tx:
        await tx.execute("""INSERT INTO "x""; DROP TABLE y; --$1 {id}" ("i d", "st""at {table}") VALUES (7, 'queued')""")
    work = hf_at.adopted(adopted.table)
    (row,) = await work.claim("w", lease=1)
    clock.advance(2)
    assert [one.id for one in (await hf_at.reap()).adopted] == [row.id] == [7]


def test_a_mapping_that_cannot_work_is_refused_when_it_is_written() -> None:
    """Unknown names, and two meanings for one column."""
    with pytest.raises(ConfigError, match="did you mean status"):
        AdoptedTable("jobs", columns={"statis": "x"})
    with pytest.raises(ConfigError, match="Two columns are mapped to 'status'"):
        AdoptedTable("jobs", columns={"stage": "status"})
    with pytest.raises(ConfigError, match="Two status words"):
        AdoptedTable("jobs", words={"failed": "completed"})
    with pytest.raises(ConfigError, match="characters without NUL"):
        AdoptedTable("a\0b")


async def test_a_status_that_the_column_cannot_hold_is_refused(postgres_url: str) -> None:
    """An enumeration knows its words."""
    hf = Holdfast(postgres_url)
    try:
        async with hf.transaction() as tx:
            await tx.execute("CREATE TYPE s AS ENUM ('queued', 'busy', 'completed', 'failed')")
            await tx.execute("CREATE TABLE asr (id int PRIMARY KEY, status s)")
        with pytest.raises(ConfigError, match="cannot be 'running', only queued, busy"):
            await setup.adopt(hf, AdoptedTable("asr"))
    finally:
        await hf.aclose()


async def test_a_table_in_another_schema_is_named_with_it(postgres_url: str) -> None:
    """And its events are beside it; Holdfast's own tables cannot be adopted."""
    hf = Holdfast(postgres_url)
    try:
        async with hf.transaction() as tx:
            await tx.execute("CREATE SCHEMA audio")
            await tx.execute("CREATE TABLE audio.asr_jobs (id int PRIMARY KEY, status text)")
        with pytest.raises(ConfigError, match=r"did you mean 'audio\.asr_jobs'"):
            await setup.plan(hf, AdoptedTable("asr_jobs"))
        done = await setup.adopt(hf, AdoptedTable("audio.asr_jobs"))
        assert any('CREATE TABLE "audio"."job_events"' in sql for sql in done)
        with pytest.raises(ConfigError, match="Holdfast's own"):
            await setup.plan(hf, AdoptedTable("holdfast.jobs"))
    finally:
        await hf.aclose()


def test_the_command_shows_adopts_lists_and_removes(
    sqlite_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run first; a wrong name ends it with a sentence; and `holdfast reaper` finds the table."""
    monkeypatch.chdir(tmp_path)
    hf = Holdfast(sqlite_url)

    async def make() -> None:
        await make_tables(hf)
        await Team(hf, JOBS).add(1, status="busy", attempt_count=1, lease_expires_at=1.0)
        await hf.aclose()

    run_apart(make())

    def holdfast(*arguments: str, code: int = 0) -> str:
        assert main(["--database", sqlite_url, *arguments]) == code
        printed = capsys.readouterr()
        return printed.out + printed.err

    adopt = ("adopt", "--table", "jobs", "--word", "running=busy")
    assert "ADD COLUMN" in (shown := holdfast(*adopt)) and "Nothing was changed" in shown
    assert json.loads(holdfast("adopt", "--json")) == {"adopted": []}
    assert "no column 'stat'" in holdfast(*adopt, "--map", "status=stat", "--apply", code=2)
    assert "must be OURS=THEIRS" in holdfast(*adopt, "--map", "status", code=2)
    assert json.loads(holdfast(*adopt, "--apply", "--json"))["applied"] is True
    assert json.loads(holdfast("adopt", "--json"))["adopted"][0]["words"] == {"running": "busy"}
    assert json.loads(holdfast("reaper", "--once", "--json").partition("}")[0] + "}")["adopted_requeued"] == 1
    assert "no longer" in holdfast("adopt", "--table", "jobs", "--remove")
    assert "is not adopted" in holdfast("adopt", "--table", "jobs", "--remove", code=3)
