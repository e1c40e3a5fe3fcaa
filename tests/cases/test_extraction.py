"""Extractions: one at a time for each project, with a status that follows the job, on both databases."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Abort, Holdfast, State, current
from holdfast.clock import ManualClock
from holdfast.errors import InvalidOption, NotFound
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import ExtractionContext, Options, Project
from holdfast.extraction.errors import ExtractionInProgress, NoRepository, NothingToRetry
from holdfast.extraction.manifests import read_tree
from holdfast.pipeline import StepUnavailable
from tests.support.extractions import REPOSITORY, Staged, components
from tests.support.inventories import FIXTURES
from tests.support.waiting import until


@pytest.fixture
async def staged(hf: Holdfast) -> AsyncIterator[Staged]:
    staged = Staged(hf)
    await hf.migrate()
    yield staged


async def status(staged: Staged) -> str:
    return (await staged.extraction.get("acme", "shop")).status


async def test_an_extraction_is_queued_with_its_connection_and_ends_ready(staged: Staged) -> None:
    """One transaction makes the repository, the job and the run; its end sets the status."""
    job = await staged.connect()
    assert (job.state, job.tenant, await status(staged)) == (State.QUEUED, "acme", "queued")
    await staged.work()
    found = await staged.extraction.get("acme", "shop")
    assert (found.status, found.job_id, found.full_name, found.provider) == ("ready", job.id, "shop", "GitHub")
    (run,) = await staged.extraction.runs("acme", "shop")
    assert (run.number, run.job_id, run.error_code) == (1, job.id, None)
    assert run.outcomes["deps_sync"]["status"] == "ok"
    assert run.started_at is not None and run.finished_at is not None and run.started_at <= run.finished_at


@pytest.mark.case("C30")
async def test_a_second_start_while_the_first_waits_is_refused(staged: Staged) -> None:
    """Nothing is queued by it, and the refusal names the job that is there."""
    job = await staged.connect()
    with pytest.raises(ExtractionInProgress) as refused:
        await staged.extraction.start("acme", "shop")
    assert (refused.value.code, refused.value.job_id) == ("extraction_in_progress", job.id)
    assert [one.id for one in await staged.hf.jobs()] == [job.id]
    assert len(await staged.extraction.runs("acme", "shop")) == 1


@pytest.mark.case("L12")
async def test_a_second_start_while_the_first_runs_is_refused(staged: Staged) -> None:
    """Also by connecting anew, which then changes nothing of the repository."""
    running, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: ExtractionContext) -> None:
        running.set()
        await go_on.wait()

    staged.before = wait
    job = await staged.connect()
    working = asyncio.ensure_future(staged.work())
    await running.wait()
    assert await status(staged) == "extracting"
    with pytest.raises(ExtractionInProgress):
        await staged.connect(branch="other")
    with pytest.raises(ExtractionInProgress):
        await staged.extraction.retry("acme", "shop")
    assert [one.id for one in await staged.hf.jobs()] == [job.id]
    go_on.set()
    await working
    found = await staged.extraction.get("acme", "shop")
    assert (found.status, found.branch) == ("ready", "main")


async def test_of_many_starts_at_once_one_wins(staged: Staged) -> None:
    """The others are told, and there is one job."""
    await staged.connect()
    await staged.work()
    answers = await asyncio.gather(*(staged.extraction.start("acme", "shop") for _ in range(8)), return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [*["ExtractionInProgress"] * 7, "Job"]
    assert len(await staged.hf.jobs()) == 2


async def test_a_permanent_failure_makes_the_repository_an_error_until_it_is_retried(staged: Staged) -> None:
    """The run keeps the sentence; a retry is the same job, and one that went well cannot be retried."""
    staged.laid = {"dependencies": Abort("Repository not found - it may have been deleted or made private", code="gone")}
    job = await staged.connect()
    await staged.work()
    (run,) = await staged.extraction.runs("acme", "shop")
    assert (await status(staged), run.error_code) == ("error", "gone")
    assert run.error_message == "Repository not found - it may have been deleted or made private"
    lines = await staged.hf.logs((await staged.hf.get(job.id)).run_id)
    assert f"Extraction failed: {run.error_message}" in [line.message for line in lines]

    staged.laid = {"dependencies": components("a")}
    assert (await staged.extraction.retry("acme", "shop")).id == job.id
    assert await status(staged) == "queued"
    await staged.work()
    assert await status(staged) == "ready"
    assert (await staged.extraction.runs("acme", "shop"))[0].error_message is None
    with pytest.raises(NothingToRetry):
        await staged.extraction.retry("acme", "shop")


async def test_an_unknown_failure_waits_for_its_next_attempt(staged: Staged) -> None:
    """Queued again, not an error yet; the earlier results stay until then."""
    await staged.connect()
    await staged.work()
    await staged.extract({"dependencies": ZeroDivisionError()})
    found = await staged.extraction.get("acme", "shop")
    assert found.job_id is not None
    assert (found.status, (await staged.hf.get(found.job_id)).status) == ("queued", "retrying")
    assert await staged.purls() == ["a", "b"]


async def test_a_cancelled_extraction_leaves_the_project_free_for_the_next(staged: Staged) -> None:
    """Cancelled while it waits: no worker ever saw it, and still the status tells."""
    await staged.connect()
    assert (await staged.extraction.cancel("acme", "shop")).status == "cancelled"
    await staged.extract()
    assert await status(staged) == "ready"


@pytest.mark.case("L10")
async def test_an_extraction_cancelled_while_it_runs_keeps_the_results_of_the_one_before(staged: Staged) -> None:
    """It stops at the next step, and the status tells."""
    await staged.connect()
    await staged.work()

    async def cancel(_: ExtractionContext) -> None:
        await staged.extraction.cancel("acme", "shop")
        await until(lambda: current().cancelled)
        current().check_cancelled()

    staged.before = cancel
    await staged.extract({"dependencies": components("x")})
    assert await status(staged) == "cancelled"
    assert await staged.purls() == ["a", "b"]


async def test_an_extraction_that_the_reaper_gives_up_makes_the_repository_an_error(
    hf_at: Holdfast, clock: ManualClock
) -> None:
    """Three workers take it and vanish: nobody is left who could set the status, and still it tells."""
    staged = Staged(hf_at)
    await hf_at.migrate()
    job = await staged.connect()
    for _ in range(3):
        await hf_at.store.job_claim(worker="w", machine=None, queues=["extraction"], tasks=["extract"], limit=1)
        assert await status(staged) == "extracting"
        clock.advance(10_000)
        await hf_at.reap()
        clock.advance(10_000)
    assert ((await hf_at.get(job.id)).state, await status(staged)) == (State.FAILED, "error")
    assert [one.status for one in await staged.extraction.list("acme")] == ["error"]
    await staged.extract()
    assert await status(staged) == "ready"


@pytest.mark.case("C29", "C34")
async def test_five_extractions_at_once_are_not_mixed_up(staged: Staged) -> None:
    """All run together, and each project has its own rows."""
    together = asyncio.Barrier(5)

    async def meet(_: ExtractionContext) -> None:
        async with together:
            pass

    staged.before = meet
    names = [f"p{number}" for number in range(5)]
    await staged.hf.tenants.set("acme", limit=5)
    for name in names:
        staged.by_branch[name] = {"dependencies": components(name, "common")}
        await staged.connect(name, branch=name)
    await staged.work()
    for name in names:
        results = await staged.extraction.results("acme", name)
        assert results.repository.status == "ready"
        assert [one.name for one in results.dependencies or []] == ["common", name]


async def test_no_organization_reaches_anothers_project_or_integration(staged: Staged) -> None:
    """There is no such project for it; and an integration that is not its own is refused before anything is written."""
    await staged.connect(tenant="acme")
    with pytest.raises(NoRepository):
        await staged.extraction.results("rival", "shop")
    with pytest.raises(NoRepository):
        await staged.extraction.start("rival", "shop")
    with pytest.raises(NotFound, match="integration"):
        await staged.extraction.connect("rival", "shop", REPOSITORY, integration="acmes")
    assert await staged.extraction.list("rival") == []
    assert [one.project for one in await staged.extraction.list("acme")] == ["shop"]


@pytest.mark.parametrize(
    "given",
    [
        {"source": "https://ana:hunter2@github.com/acme/shop"},
        {"source": "https://ghp_token@github.com/acme/shop"},
        {"source": ""},
        {"path": "web/../../elsewhere"},
        {"branch": "main\0"},
        {"branch": "b" * 2001},
    ],
)
async def test_a_repository_that_cannot_be_connected_leaves_nothing(staged: Staged, given: dict[str, str]) -> None:
    """Above all no token: an address is stored and shown."""
    with pytest.raises(InvalidOption) as refused:
        await staged.extraction.connect("acme", "shop", msgspec.structs.replace(REPOSITORY, **given))
    assert "hunter2" not in str(refused.value)
    assert (await staged.extraction.list("acme"), await staged.hf.jobs()) == ([], [])


async def test_the_job_carries_ids_only(staged: Staged) -> None:
    """No address and no token, and even the id is not shown."""
    job = await staged.connect()
    repository = await staged.extraction.get("acme", "shop")
    row = await staged.hf.store.job_get(job.id)
    assert row.args in (None, {"repository": repository.id})
    assert "github" not in str(row.as_dict())


@pytest.mark.case("D31")
async def test_dependencies_stay_pending_while_registries_are_down(hf_at: Holdfast, clock: ManualClock) -> None:
    """Three tries in a job of its own; the extraction is ready all the same, and the next one triggers it again."""
    is_down, asked = True, 0

    async def registry(purls: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        nonlocal asked
        asked += 1
        if is_down:
            raise ConnectionError("registry is down")
        return {purl: {"license": "MIT"} for purl in purls}

    staged = Staged(hf_at, registry=registry)
    await hf_at.migrate()
    await staged.connect()
    for _ in range(5):
        await staged.work()
        clock.advance(1000)
    results = await staged.extraction.results("acme", "shop")
    assert (results.repository.status, results.pending_enrichment, asked) == ("ready", 2, 3)

    is_down = False
    await staged.extract()
    results = await staged.extraction.results("acme", "shop")
    assert (results.pending_enrichment, asked) == (0, 4)
    assert results.enrichment["pkg:npm/a@1.0.0"] == {"license": "MIT"}
    await staged.extract()
    assert asked == 4, "what is known is not asked again"


@pytest.mark.case("pipeline-2")
async def test_a_missing_tool_is_told_beside_the_results_of_the_others(staged: Staged) -> None:
    """An optional step that is unavailable leaves the repository ready and its kind not scanned."""
    reason = "Static analysis skipped (Semgrep not installed)"
    staged.laid = {"dependencies": components("a"), "findings": StepUnavailable(reason), "secrets": []}
    await staged.connect()
    await staged.work()
    results = await staged.extraction.results("acme", "shop")
    assert results.repository.status == "ready"
    assert (results.scans["findings"].scanned, results.scans["findings"].reason) == (False, reason)
    assert (results.findings, results.secrets, results.scans["secrets"].count) == (None, [], 0)


async def test_the_steps_of_the_real_pipeline_keep_what_they_find(hf: Holdfast, tmp_path: Path) -> None:
    """A folder of this machine, read by what pip installs: its dependencies and secrets are in the database, and what had
    no advisories is not scanned."""
    folder = shutil.copytree(FIXTURES / "npm-app", tmp_path / "shop")
    (folder / "settings.py").write_text('password = "aiN4eiT3Ohsh7quae4ch"\n')
    extraction = Extraction(hf, Options(trusted=True, storage=str(tmp_path / "reports")))
    await hf.migrate()
    await extraction.connect("acme", "shop", Project(id="", source=str(folder)))
    await hf.run_worker(exit_when_idle=0.0)
    found = await extraction.results("acme", "shop")
    assert found.repository.status == "ready"
    wanted = read_tree(folder, "").components
    assert {one.purl for one in found.dependencies or []} == {one.purl for one in wanted} != set()
    assert [one.path for one in found.secrets or []] == ["settings.py"]
    assert (found.vulnerabilities, found.scans["vulnerabilities"].scanned) == (None, False)
    assert all(Path(one.location).stat().st_size == one.bytes for one in found.reports or [])
    assert len(found.reports or []) >= 2
