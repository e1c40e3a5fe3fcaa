"""A retry skips scans whose result is stored and still true; the clone always runs again."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.clock import ManualClock
from holdfast.extraction.advisories import update
from holdfast.extraction.app import Extraction
from holdfast.extraction.context import ExtractionContext, Options, Project
from holdfast.extraction.pipeline import STEPS, steps_for
from holdfast.pipeline import Done, Pipeline, Step
from tests.support.extraction_steps import FIXTURES, program, step_named
from tests.support.git_server import GitServer, commit

REPORT = {
    "results": [
        {
            "check_id": "rules.js-eval",
            "path": "checkout/index.js",
            "start": {"line": 1},
            "end": {"line": 1},
            "extra": {"message": "eval", "severity": "ERROR"},
        }
    ],
    "errors": [],
    "paths": {"scanned": ["checkout/index.js"]},
}
SEMGREP = f"""
place = next(one for one in arguments if one.startswith("--json-output=")).partition("=")[2]
open(place, "w").write('''{json.dumps(REPORT)}''')
open(os.environ.get("COUNTER", {{counter!r}}), "a").write("x")
"""


class Scene:
    """A repository on a server, a Semgrep that counts its runs, and a step that crashes as often as it is told."""

    def __init__(self, hf: Holdfast, clock: ManualClock, server: GitServer, folder: Path) -> None:
        self.hf, self.clock, self.server = hf, clock, server
        self.counter = folder / "semgrep-runs"
        program(folder / "bin", "counting-semgrep", SEMGREP.replace("{counter!r}", repr(str(self.counter))))
        advisories = folder / "advisories.db"
        update(advisories, [str(_fresh(folder / "osv")), str(FIXTURES / "feeds" / "epss_scores-sample.csv.gz")])
        self.options = Options(
            trusted=True,
            semgrep=str(folder / "bin" / "counting-semgrep"),
            storage=str(folder / "reports"),
            advisories=advisories,
        )
        self.crashes = 0
        self.on_crash: Any = None
        steps = [step for step in STEPS if step.name != "complete"]
        steps.insert(-1, Step("crash", self._crash))
        self.extraction = Extraction(hf, self.options, pipeline=Pipeline(steps, workspaces=folder / "workspaces"))

    async def _crash(self, _: ExtractionContext) -> Done:
        if self.crashes:
            self.crashes -= 1
            if self.on_crash is not None:
                await self.on_crash()
            raise ZeroDivisionError("out of the blue")
        return Done("fine")

    async def run(self) -> dict[str, Any]:
        await self.extraction.connect("acme", "shop", Project(id="", source=f"{self.server.url}/ok/app"))
        for _ in range(3):
            await self.hf.run_worker(exit_when_idle=0.0)
            self.clock.advance(1000)
        return (await self.extraction.runs("acme", "shop"))[0].outcomes

    @property
    def semgrep_runs(self) -> int:
        return len(self.counter.read_text())


def _fresh(folder: Path) -> Path:
    """Advisories of today: old ones make a scan partial, and that is not remembered."""
    folder.mkdir()
    for path in (FIXTURES / "osv").glob("*.json"):
        record = json.loads(path.read_text())
        (folder / path.name).write_text(json.dumps({**record, "modified": datetime.now(UTC).isoformat()}))
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    served = GitServer(tmp_path / "served")
    shutil.copytree(FIXTURES / "npm-app", served.root / "app")
    commit(served.root / "app", {"index.js": b"eval(x)\n", "settings.py": b'PASSWORD = "tr0ub4dor-and-3-horses"\n'})
    yield served
    served.close()


@pytest.fixture
async def scene(hf_at: Holdfast, clock: ManualClock, server: GitServer, tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(hf_at, clock, server, tmp_path)
    await hf_at.migrate()
    yield made


async def test_a_retry_skips_finished_scans_and_still_reports_all_they_found(scene: Scene) -> None:
    """The clone, the SBOM and the sync ran again; what the scans had found is in the report and in the database."""
    scene.crashes = 1
    outcomes = await scene.run()
    assert (await scene.extraction.get("acme", "shop")).status == "ready"
    skipped = {name for name, one in outcomes.items() if one["remembered"]}
    assert skipped == {"semgrep", "trufflehog", "vuln_scan"}
    assert scene.semgrep_runs == 1
    found = await scene.extraction.results("acme", "shop")
    assert (len(found.findings or []), len(found.secrets or []), len(found.vulnerabilities or [])) == (1, 1, 2)
    assert outcomes["enrich"]["counts"]["scored"] == 2
    (report,) = [one for one in found.reports or [] if one.name == "results.json"]
    told = json.loads(Path(report.location).read_text())
    assert (len(told["findings"]), len(told["secrets"]), len(told["vulnerabilities"])) == (1, 1, 2)


async def test_another_commit_is_scanned_anew(scene: Scene) -> None:
    """What was pushed between the attempts is not missed."""

    async def push() -> None:
        commit(scene.server.root / "app", {"more.js": b"eval(y)\n"})

    scene.crashes, scene.on_crash = 1, push
    outcomes = await scene.run()
    assert not any(one["remembered"] for one in outcomes.values())
    assert scene.semgrep_runs == 2


async def test_a_result_that_is_gone_from_the_database_is_made_again(scene: Scene) -> None:
    """To remember that a step was done is not enough."""

    async def lose() -> None:
        async with scene.hf.transaction() as tx:
            dot = "holdfast." if tx.store_kind == "postgres" else "holdfast_"
            await tx.execute(f"DELETE FROM {dot}extraction_scans WHERE kind = 'findings'")

    scene.crashes, scene.on_crash = 1, lose
    outcomes = await scene.run()
    assert (outcomes["semgrep"]["remembered"], outcomes["trufflehog"]["remembered"]) == (False, True)
    assert len((await scene.extraction.results("acme", "shop")).findings or []) == 1


async def test_research_gives_the_scan_three_hours() -> None:
    """And only the scan."""
    longer = {step.name: step.timeout for step in steps_for(Options(profile="research"))}
    usual = {step.name: step.timeout for step in STEPS}
    assert {name for name in usual if usual[name] != longer[name]} == {"vuln_scan"}
    assert longer["vuln_scan"] == 3 * 3600
    assert step_named("vuln_scan").timeout == 15 * 60
