"""What an extraction found, in the database: exactly the right rows, whole for every reader, on both databases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast, State
from holdfast.errors import LeaseLost
from holdfast.extraction import sync
from holdfast.extraction.model import Component, Inventory, Report
from holdfast.extraction.sync import save_dependencies, save_scan
from holdfast.pipeline import StepFailed
from tests.support.extractions import Staged, components, finding, secret, vulnerability


@pytest.fixture
async def staged(hf: Holdfast) -> AsyncIterator[Staged]:
    staged = Staged(hf)
    await hf.migrate()
    await staged.connect()
    await staged.work()
    yield staged


async def results(staged: Staged) -> Any:
    return await staged.extraction.results("acme", "shop")


async def test_what_was_saved_is_read_back_as_it_was(staged: Staged) -> None:
    """Every field of every kind, whatever the database calls its types; what is unknown stays unknown."""
    rows: dict[str, Any] = {
        "dependencies": components("a", "b", "c"),
        "vulnerabilities": [
            vulnerability("GHSA-1", "pkg:npm/a@1.0.0"),
            vulnerability(
                "GHSA-2",
                "pkg:npm/b@1.0.0",
                aliases=["CVE-2020-1"],
                severity="critical",
                cvss_score=9.8,
                cvss_vector="CVSS:3.1/AV:N",
                fixed_in=["1.0.1"],
                summary="Bad",
                epss=0.5,
                percentile=0.9,
                kev=True,
            ),
            vulnerability("GHSA-3", "pkg:npm/c@1.0.0", epss=0.0, kev=False),
        ],
        "findings": [finding("r1"), finding("r2", end_line=9, cwes=["CWE-79"], severity="info")],
        "secrets": [secret("AWS"), secret("GitHub", verified=True, commit="c0ffee"), secret("Zip", verified=False)],
        "reports": [Report(name="sbom.json", location="reports/sbom.json", media_type="application/json", bytes=3)],
    }
    await staged.extract(rows)
    found = await results(staged)
    assert {kind: getattr(found, kind) for kind in rows} == rows
    assert {kind: scan.count for kind, scan in found.scans.items()} == {kind: len(laid) for kind, laid in rows.items()}


async def test_a_kind_that_was_not_scanned_keeps_no_rows_of_the_run_before(staged: Staged) -> None:
    """Nobody knows, so nothing is shown; that is not the same as nothing found."""
    await staged.extract({"dependencies": [], "secrets": [secret("AWS")], "findings": [finding("r")]})
    await staged.extract({"dependencies": [], "secrets": [], "findings": RuntimeError("crashed")})
    found = await results(staged)
    assert (found.secrets, found.scans["secrets"].count, found.scans["secrets"].reason) == ([], 0, None)
    assert (found.findings, found.scans["findings"].count) == (None, None)
    assert "crashed" in found.scans["findings"].reason
    assert (found.vulnerabilities, found.scans["vulnerabilities"].scanned) == (None, False)


@pytest.mark.case("D33")
async def test_a_reader_sees_the_old_dependencies_or_the_new_ones_and_never_a_mixture(staged: Staged) -> None:
    """While they are replaced again and again by a writer beside him, together with their count."""
    old, new = ([f"{name}{number}" for number in range(200)] for name in ("old", "new"))
    seen: set[str] = set()
    done = asyncio.Event()
    await staged.extract({"dependencies": components(*new)})

    async def read() -> None:
        while not done.is_set():
            found = await results(staged)
            names = sorted(one.name for one in found.dependencies)
            assert names in (sorted(old), sorted(new))
            assert found.scans["dependencies"].count == 200
            seen.add(names[0][:3])

    reading = asyncio.ensure_future(read())
    for number in range(6):
        await staged.extract({"dependencies": components(*(new if number % 2 else old))})
    done.set()
    await reading
    assert seen == {"old", "new"}
    assert sorted(await staged.purls()) == sorted(new)


@pytest.mark.case("D32")
async def test_saving_over_rows_of_an_earlier_try_ends_with_exactly_the_right_ones(staged: Staged) -> None:
    """Rows that are right, wrong, gone and new at once; and saving twice changes nothing."""
    repository = await staged.extraction.get("acme", "shop")
    assert repository.run_id is not None
    wanted = [*components("b", "c"), Component(purl="pkg:npm/d@2", name="d", version="2", ecosystem="npm", scope="dev")]
    for laid in (components("a", "b", "c"), wanted, wanted):
        await save_dependencies(staged.hf, repository.id, repository.run_id, Inventory(components=laid))
    found = (await results(staged)).dependencies
    assert sorted(found, key=lambda one: one.name) == wanted


async def test_an_attempt_that_was_overtaken_writes_nothing(staged: Staged) -> None:
    """A worker that was frozen past its lease wakes up with the run id of before."""
    before = await staged.extraction.get("acme", "shop")
    assert before.run_id is not None
    await staged.extract()
    with pytest.raises(LeaseLost):
        await save_dependencies(staged.hf, before.id, before.run_id, Inventory(components=components("stale")))
    with pytest.raises(LeaseLost):
        await save_scan(staged.hf, before.id, before.run_id, "secrets", None)
    assert await staged.purls() == ["a", "b"]


async def test_the_difference_tells_what_came_and_what_went(staged: Staged) -> None:
    """Compared with the last run that looked for the kind; a newer version with the same hole is no news."""
    hole = {"dependencies": components("a"), "vulnerabilities": [vulnerability("GHSA-1", "pkg:npm/a@1.0.0")]}
    await staged.extract({**hole, "secrets": [secret("AWS"), secret("Old", path="gone.py")]})
    await staged.extract({**hole, "secrets": RuntimeError("crashed")})
    same_hole = {"dependencies": components("b"), "vulnerabilities": [vulnerability("GHSA-1", "pkg:npm/a@1.0.1")]}
    await staged.extract({**same_hole, "secrets": [secret("AWS", line=77), secret("New")]})
    found = (await results(staged)).scans
    told = {kind: found[kind].difference for kind in ("dependencies", "vulnerabilities", "secrets")}
    assert (told["dependencies"].added, told["dependencies"].gone) == (["pkg:npm/b@1.0.0"], ["pkg:npm/a@1.0.0"])
    assert (told["vulnerabilities"].added, told["vulnerabilities"].gone, told["vulnerabilities"].unchanged) == ([], [], 1)
    assert (told["secrets"].added, told["secrets"].gone) == (["New in a.py"], ["Old in gone.py"])
    assert (told["dependencies"].to_run, told["secrets"].to_run) == (3, 2)
    assert found["findings"].difference is None


async def test_an_extraction_that_failed_on_the_way_leaves_what_is_known(staged: Staged) -> None:
    """The newest answer of each kind stands until there is another."""
    await staged.extract({"dependencies": components("a"), "secrets": [secret("AWS")]})
    await staged.extract({"dependencies": StepFailed("Repository host unreachable - try again later")})
    found = await results(staged)
    assert found.repository.status == "error"
    assert (len(found.secrets), found.scans["secrets"].run, await staged.purls()) == (1, 2, ["a"])


async def test_no_secret_that_a_rule_quotes_is_stored(staged: Staged) -> None:
    """Rules put the code they match into their messages."""
    token = "ghp_" + "a1B2" * 9
    await staged.extract({"dependencies": [], "findings": [finding("hard-coded", message=f"Remove {token} from the code")]})
    (one,) = (await results(staged)).findings
    assert token not in one.message and one.message.startswith("Remove ")


async def test_text_that_a_database_refuses_is_stored_all_the_same(staged: Staged) -> None:
    """Zero characters and halves of pairs, as tools meet them in files."""
    await staged.extract({"dependencies": [], "findings": [finding("r", message="zero \0 half \ud800 plain \\u0000")]})
    (one,) = (await results(staged)).findings
    assert one.message == "zero \N{REPLACEMENT CHARACTER} half ? plain \\u0000"


async def test_results_are_exported_as_json_sarif_and_sbom(staged: Staged) -> None:
    """From the database, without another look at the code."""
    await staged.extract({"dependencies": components("a"), "secrets": [secret("AWS")], "findings": [finding("r")]})
    found = await results(staged)
    plain = json.loads(json.dumps(found.as_json()))
    assert (plain["repository"]["status"], plain["vulnerabilities"], len(plain["secrets"])) == ("ready", None, 1)
    assert len(found.as_sarif()["runs"][0]["results"]) == 2
    assert [one["purl"] for one in json.loads(found.as_sbom())["components"]] == ["pkg:npm/a@1.0.0"]


# -- connections that are lost in the middle (PostgreSQL, where there are connections) ---------------------------------

CUT_OFF = """
CREATE SEQUENCE public.cuts;
CREATE FUNCTION public.cut_off() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.cuts') <= {cuts} THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER cut_off AFTER INSERT ON holdfast.extraction_dependencies FOR EACH STATEMENT EXECUTE FUNCTION public.cut_off();
"""


async def sync_with_cuts(url: str, cuts: int, monkeypatch: pytest.MonkeyPatch) -> tuple[State, str, list[str], list[str]]:
    """One extraction whose sync loses its connection so often, after its rows are written and before they are committed."""
    monkeypatch.setattr(sync, "PAUSES", (0.01, 0.01))
    hf = Holdfast(url)
    staged = Staged(hf)
    await hf.migrate()
    async with hf.transaction() as tx:
        for statement in CUT_OFF.format(cuts=cuts).split(";\n\n"):
            await tx.execute(statement)
    job = await staged.connect()
    await staged.work()
    ended = await hf.get(job.id)
    warnings = [line.message for line in await hf.logs(ended.run_id, levels=["warning"])]
    found = (ended.state, ended.error_message or "", warnings, await staged.purls())
    await hf.aclose()
    return found


AGAIN = "Database connection error during sync - will retry"


async def test_a_sync_that_loses_its_connection_twice_comes_through(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tries inside the step; the log tells of each."""
    assert await sync_with_cuts(postgres_url, 2, monkeypatch) == (State.COMPLETED, "", [AGAIN, AGAIN], ["a", "b"])


async def test_a_sync_that_loses_its_connection_three_times_fails_the_extraction(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For good and with the sentence for people; nothing is half written."""
    state, message, warnings, purls = await sync_with_cuts(postgres_url, 3, monkeypatch)
    assert (state, message, purls) == (State.FAILED, "Database connection error during sync", [])
    assert warnings == [AGAIN, AGAIN]
