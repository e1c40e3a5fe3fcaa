"""The whole application with real steps on both databases: a repository on a real server in, rows out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.extraction.advisories import update
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import Options, Project
from tests.cases.steps import drain
from tests.support.extraction_steps import FIXTURES
from tests.support.git_server import GitServer, commit


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    served = GitServer(tmp_path / "served")
    yield served
    served.close()


async def test_an_extraction_ends_with_everything_in_the_database(hf: Holdfast, server: GitServer, tmp_path: Path) -> None:
    """Dependencies, vulnerabilities with scores and secrets are there; static analysis is not scanned, with its reason."""
    shutil.copytree(FIXTURES / "npm-app", server.root / "app")
    commit(server.root / "app", {"settings.py": b'PASSWORD = "tr0ub4dor-and-3-horses"\n'})
    advisories = tmp_path / "advisories.db"
    update(advisories, [str(FIXTURES / "osv"), str(FIXTURES / "feeds" / "epss_scores-sample.csv.gz")])
    options = Options(advisories=advisories, trusted=True, semgrep="no-such-semgrep", storage=str(tmp_path / "reports"))
    extraction = Extraction(hf, options)
    await hf.migrate()
    await extraction.connect("acme", "shop", Project(id="", source=f"{server.url}/ok/app"))
    await drain(hf)
    assert (await extraction.get("acme", "shop")).status == "ready"
    found = await extraction.results("acme", "shop")
    assert {one.name for one in found.dependencies or []} == {"lodash", "minimist", "mkdirp", "ms"}
    assert [one.epss is not None for one in found.vulnerabilities or []] == [True, True]
    assert [(one.path, one.line) for one in found.secrets or []] == [("settings.py", 1)]
    assert found.findings is None
    assert found.scans["findings"].reason == "Static analysis skipped (Semgrep not installed)"
    assert len(found.reports or []) == 3


@pytest.mark.case("pipeline-3")
async def test_a_failed_clone_makes_the_repository_an_error(hf: Holdfast, server: GitServer) -> None:
    """With the sentence that the user reads, and no second attempt."""
    extraction = Extraction(hf, Options(trusted=True))
    await hf.migrate()
    job = await extraction.connect("acme", "shop", Project(id="", source=f"{server.url}/503/app"))
    await drain(hf)
    ended = await hf.get(job.id)
    assert (ended.attempt, ended.error_message) == (1, "Repository host unreachable - try again later")
    assert (await extraction.get("acme", "shop")).status == "error"
