"""The scanners' adapters: real detect-secrets, recorded outputs of the others, and stand-ins that fail as the real ones do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import State
from holdfast.extraction.advisories import update
from holdfast.extraction.context import ExtractionContext, Options, Project
from holdfast.pipeline import Step
from tests.support.extraction_steps import FIXTURES, Ran, output_of, program, run_steps, step_named
from tests.support.late_tools import LATE_SECONDS, late_once

SEMGREP_WRITES = """
report = next(a.partition("=")[2] for a in arguments if a.startswith("--json-output="))
open(report, "w").write({text!r})
"""
TRUFFLEHOG_SAYS = {
    "SourceMetadata": {"Data": {"Filesystem": {"file": "settings.py", "line": 3}}},
    "DetectorName": "Github",
    "Verified": False,
    "Raw": "ghp_" + "x7Rk2mVqLw9TnB4sYc6HjD1fPzE8uKa3GiWo",
    "Redacted": "",
}


class Scan:
    """Runs steps over a folder, with a folder for stand-ins at the front of PATH."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self._url, self._tmp = url, tmp_path
        self.programs = tmp_path / "programs"
        self.folder = tmp_path / "repository"
        self.folder.mkdir()
        self.context: ExtractionContext = ExtractionContext(Project(id="local", source=str(self.folder)))

    async def __call__(self, *steps: str | Step, path: str = "", **options: Any) -> Ran:
        project = Project(id="local", source=str(self.folder), path=path)
        self.context = ExtractionContext(project, Options(trusted=True, **options))
        named = [step_named(step) if isinstance(step, str) else step for step in ("cloning", *steps)]
        return await run_steps(self._url, named, self.context, self._tmp / "workspaces")

    def holds(self, fixture: str) -> None:
        shutil.copytree(FIXTURES / fixture, self.folder, dirs_exist_ok=True)


@pytest.fixture
def scan(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    made = Scan(sqlite_url, tmp_path)
    monkeypatch.setenv("PATH", f"{made.programs}{os.pathsep}{os.environ['PATH']}")
    return made


@pytest.fixture
def advisories(tmp_path: Path) -> Path:
    path = tmp_path / "advisories.db"
    update(path, [str(FIXTURES / "osv"), str(FIXTURES / "feeds" / "epss_scores-sample.csv.gz")])
    return path


# -- SBOM ----------------------------------------------------------------------------------------------------------------


async def test_without_cdxgen_the_built_in_readers_make_the_sbom(scan: Scan) -> None:
    """The same message, and a note in the log."""
    scan.holds("npm-app")
    ran = await scan("sbom", "deps_sync")
    assert ran.outcomes["sbom"].message == "SBOM generated - found 4 dependencies"
    assert ran.outcomes["deps_sync"].message == "Dependencies synced (4 direct, 0 transitive)"
    assert json.loads(scan.context.reports["sbom.cdx.json"])["specVersion"] == "1.6"


async def test_cdxgen_is_locked_down_and_its_report_read(scan: Scan) -> None:
    """It may start nothing but git; its exit code counts for nothing."""
    scan.holds("npm-app")
    text = (FIXTURES / "cdxgen" / "npm-app.cdx.json").read_text()
    code = f"""
assert os.environ["CDXGEN_ALLOWED_COMMANDS"] == "git" and "--no-install-deps" in arguments
open(arguments[arguments.index("-o") + 1], "w").write({text!r})
sys.exit(3)
"""
    program(scan.programs, "cdxgen", code)
    ran = await scan("sbom")
    assert (ran.last.status, ran.last.counts) == ("ok", {"dependencies": 4})
    assert scan.context.cdxgen_ran


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('boom', file=sys.stderr); sys.exit(1)", "cdxgen failed: boom"),
        ("print('FATAL ERROR: Reached heap limit', file=sys.stderr); sys.exit(134)", "cdxgen ran out of memory"),
        ("open(arguments[arguments.index('-o') + 1], 'w').write('{}')", "cdxgen failed: ended with exit code 0"),
    ],
)
async def test_a_cdxgen_that_breaks_down_costs_completeness_only(scan: Scan, code: str, reason: str) -> None:
    """The built-in readers step in, and the run says so."""
    scan.holds("npm-app")
    program(scan.programs, "cdxgen", code)
    ran = await scan("sbom")
    assert (ran.last.status, ran.last.counts["dependencies"]) == ("partial", 4)
    assert ran.last.reasons[0] == f"{reason}; manifests were read by the built-in readers"


async def test_an_sbom_that_takes_too_long_fails_the_job(scan: Scan) -> None:
    """With the sentence of the table, at once."""
    scan.holds("npm-app")
    program(scan.programs, "cdxgen", "import signal; signal.pause()")
    ran = await scan(step_named("sbom", timeout=0.5))
    message = "SBOM generation timed out - the repository may be too large or complex"
    assert (ran.job.state, ran.job.error_message, ran.left_behind) == (State.FAILED, message, [])


@pytest.mark.parametrize(
    ("files", "path", "message"),
    [
        ({"README.md": "x"}, "", "No package manifest found at '/' - check your project's package path setting"),
        ({"package.json": "{}"}, "web", "No package manifest found at 'web' - check your project's package path setting"),
        ({"package.json": "{}"}, "../..", "No package manifest found at '../..' - check your project's package path setting"),
        ({"package.json": "{}"}, "", "No dependencies found - the package manifest may be empty or in an unsupported format"),
    ],
)
async def test_nothing_to_list_is_a_failure_with_its_sentence(
    scan: Scan, files: dict[str, str], path: str, message: str
) -> None:
    """Never an empty SBOM that looks like a clean one."""
    for name, text in files.items():
        (scan.folder / name).write_text(text)
    ran = await scan("sbom", path=path)
    assert (ran.job.state, ran.job.error_message) == (State.FAILED, message)


# -- vulnerabilities -----------------------------------------------------------------------------------------------------


async def test_vulnerabilities_are_found_offline_and_old_advisories_are_told(scan: Scan, advisories: Path) -> None:
    """The number comes with its warning, and the feeds with theirs."""
    scan.holds("npm-app")
    ran = await scan("sbom", "vuln_scan", "enrich", advisories=advisories)
    found = ran.outcomes["vuln_scan"]
    assert found.message == "Vulnerability scan complete - found 2 vulnerabilities (1 critical)"
    assert found.status == "partial" and "days old" in found.reasons[0]
    assert ran.outcomes["enrich"].reasons == ["There is no KEV catalogue in the database."]


@pytest.mark.parametrize("missing", [None, Path("nowhere.db")])
async def test_without_advisories_nothing_is_said_to_be_clean(scan: Scan, missing: Path | None) -> None:
    """The scan is unavailable, the pipeline goes on, and the list is not empty but absent."""
    scan.holds("npm-app")
    ran = await scan("sbom", "vuln_scan", "enrich", advisories=missing)
    assert ran.outcomes["vuln_scan"].status == ran.outcomes["enrich"].status == "unavailable"
    assert ran.outcomes["vuln_scan"].message.startswith("Vulnerability scanning unavailable (")
    assert scan.context.vulnerabilities is None and ran.job.state is State.COMPLETED


async def test_depscan_adds_what_it_alone_knows(scan: Scan, advisories: Path, tmp_path: Path) -> None:
    """What both know is told once."""
    scan.holds("npm-app")
    text = output_of("depscan-6.3.0-npm-app.vdr.json")
    program(scan.programs, "depscan", f"open(arguments[arguments.index('-o') + 1] + '/sbom.vdr.json', 'w').write({text!r})")
    ours = await scan("sbom", "vuln_scan", advisories=advisories)
    both = await scan("sbom", "vuln_scan", advisories=advisories, depscan_database=tmp_path)
    assert both.outcomes["vuln_scan"].counts["vulnerabilities"] == ours.outcomes["vuln_scan"].counts["vulnerabilities"] == 2
    alone = await scan("sbom", "vuln_scan", depscan_database=tmp_path)
    assert alone.outcomes["vuln_scan"].counts["vulnerabilities"] == 2


@pytest.mark.case("I24")
async def test_depscan_without_a_report_has_failed(scan: Scan, tmp_path: Path) -> None:
    """It ends with 0 all the same; the reason is the last line of its traceback."""
    scan.holds("npm-app")
    trace = "Traceback (most recent call last):\\n  File x\\nConnectionError: no registry"
    program(scan.programs, "depscan", f"print('{trace}', file=sys.stderr)")
    ran = await scan("sbom", "vuln_scan", depscan_database=tmp_path)
    assert "dep-scan failed: ConnectionError: no registry" in ran.outcomes["vuln_scan"].message
    assert ran.outcomes["vuln_scan"].status == "unavailable"
    assert scan.context.vulnerabilities is None and ran.job.state is State.COMPLETED


async def test_a_slow_depscan_does_not_cost_what_the_matcher_found(
    scan: Scan, advisories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended before the step's own time is over."""
    scan.holds("npm-app")
    ready = tmp_path / "ready"
    program(scan.programs, "depscan", f"open({str(ready)!r}, 'w').close()\nimport signal; signal.pause()")
    late_once(monkeypatch, ready.exists)
    ran = await scan("sbom", step_named("vuln_scan", timeout=LATE_SECONDS), advisories=advisories, depscan_database=tmp_path)
    assert (ran.last.status, ran.last.counts["vulnerabilities"]) == ("partial", 2)
    assert "dep-scan timed out" in ran.last.reasons


@pytest.mark.parametrize("says", ["Used in 1 locations", "Reachable"])
async def test_research_tells_what_can_be_reached_or_that_nobody_knows(
    scan: Scan, advisories: Path, tmp_path: Path, says: str
) -> None:
    """dep-scan ends with 0 and says nothing where it could not look."""
    scan.holds("npm-app")
    vdr = json.loads(output_of("depscan-6.3.0-npm-app.vdr.json"))
    vdr["vulnerabilities"][0]["properties"] = [{"name": "depscan:insights", "value": says}]
    writes = f"open(arguments[arguments.index('-o') + 1] + '/sbom.vdr.json', 'w').write({json.dumps(vdr)!r})"
    program(scan.programs, "depscan", f"assert 'research' in arguments; {writes}")
    ran = await scan("sbom", "vuln_scan", advisories=advisories, depscan_database=tmp_path, profile="research")
    assert scan.context.vulnerabilities is not None
    reachable = [one.reachable for one in scan.context.vulnerabilities.vulnerabilities]
    if says == "Reachable":
        assert sorted(reachable, key=str) == [None, True]
    else:
        assert reachable == [None, None]
    assert ("Reachability unavailable" in ran.last.reasons) == (says != "Reachable")


# -- static analysis -----------------------------------------------------------------------------------------------------


async def test_findings_of_semgrep_get_a_fingerprint_that_survives_moving_code(scan: Scan) -> None:
    """Semgrep itself gives none without a login."""
    report = json.loads(output_of("semgrep-1.182.0-py.json"))
    prints = []
    for blank_lines in (9, 20):
        (scan.folder / "app.py").write_text("\n" * blank_lines + "subprocess.run(x, shell=True)\n")
        report["results"][0]["start"]["line"] = report["results"][0]["end"]["line"] = blank_lines + 1
        program(scan.programs, "semgrep", SEMGREP_WRITES.format(text=json.dumps(report)))
        ran = await scan("semgrep")
        assert (ran.last.status, ran.last.message) == ("ok", "Static analysis complete - 1 findings")
        (found,) = scan.context.findings or []
        assert (found.rule, found.severity, found.cwes) == ("py-subprocess-shell-true", "high", ["CWE-78"])
        prints.append(found.fingerprint)
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            {"level": "error", "message": "Rule parse error in rule bad:\n Invalid pattern for JavaScript\n----- pattern"},
            "Static analysis failed: Rule parse error in rule bad: Invalid pattern for JavaScript",
        ),
        (
            {"level": "error", "type": "InvalidRuleSchemaError", "long_msg": "r.yml is missing `rules` as top-level key"},
            "Static analysis failed: r.yml is missing `rules` as top-level key",
        ),
    ],
)
async def test_wrong_rules_are_told_in_semgreps_own_words(scan: Scan, error: dict[str, str], message: str) -> None:
    """As Semgrep 1.182 writes them: the reason may stand in the second line, or under another name."""
    report = json.dumps({"results": [], "errors": [error], "paths": {"scanned": []}})
    program(scan.programs, "semgrep", SEMGREP_WRITES.format(text=report))
    assert (await scan("semgrep")).last.message == message


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        (None, "unavailable", "Static analysis skipped (Semgrep not installed)"),
        ("print('bad flag', file=sys.stderr); sys.exit(2)", "failed", "Static analysis failed: bad flag"),
        ("os.kill(os.getpid(), 9)", "failed", "Static analysis ran out of memory - scanning skipped"),
        ("semgrep-1.182.0-max-memory-rc0.json", "failed", "Static analysis ran out of memory - scanning skipped"),
        ("semgrep-1.182.0-rule-timeouts-rc0.json", "failed", "Static analysis timed out"),
    ],
)
async def test_a_semgrep_that_scanned_nothing_never_means_no_findings(
    scan: Scan, monkeypatch: pytest.MonkeyPatch, code: str | None, status: str, message: str
) -> None:
    """Whatever its exit code says; the job goes on."""
    if code is None:
        monkeypatch.setenv("PATH", os.defpath)
    else:
        text = SEMGREP_WRITES.format(text=output_of(code)) if code.endswith(".json") else code
        program(scan.programs, "semgrep", text)
    ran = await scan("semgrep")
    assert (ran.last.status, ran.last.message, ran.job.state) == (status, message, State.COMPLETED)
    assert scan.context.findings is None


async def test_files_that_semgrep_left_out_make_the_result_partial(scan: Scan) -> None:
    """What it found counts, and what it did not scan is told."""
    report = json.loads(output_of("semgrep-1.182.0-py.json"))
    report["errors"] = json.loads(output_of("semgrep-1.182.0-rule-timeouts-rc0.json"))["errors"]
    program(scan.programs, "semgrep", SEMGREP_WRITES.format(text=json.dumps(report)))
    ran = await scan("semgrep")
    assert (ran.last.status, ran.last.counts) == ("partial", {"findings": 1, "unscanned": 2})
    assert ran.last.reasons == ["2 pairs of file and rule were not scanned", "src/big.js: Timeout"]


# -- secrets -------------------------------------------------------------------------------------------------------------


async def test_detect_secrets_finds_places_and_keeps_no_secret(scan: Scan) -> None:
    """One entry for each line, with the kind that knows best; lockfiles and other people's packages do not count."""
    token = "ghp_" + "x7Rk2mVqLw9TnB4sYc6HjD1fPzE8uKa3GiWo"
    (scan.folder / "settings.py").write_text(f'# settings\nGITHUB_TOKEN = "{token}"\n')
    (scan.folder / "node_modules").mkdir()
    (scan.folder / "node_modules" / "a.py").write_text(f'T = "{token}"\n')
    (scan.folder / "package-lock.json").write_text(f'{{"integrity": "{token}"}}')
    ran = await scan("trufflehog")
    found = scan.context.secrets or []
    assert [(one.path, one.line, one.kind) for one in found] == [("settings.py", 2, "GitHub Token")]
    assert ran.last.message == "Secret scan complete - 1 secrets found"
    assert "History not scanned" in ran.said and token not in ran.said + repr(found)


async def test_nothing_in_the_repository_stands_in_for_a_module_of_the_scanner(scan: Scan) -> None:
    """Nothing of the cloned repository is ever executed."""
    for name in ("detect_secrets.py", "json.py", "sitecustomize.py"):
        (scan.folder / name).write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    ran = await scan("trufflehog")
    assert ran.last.status == "ok" and not (scan.folder / "ran").exists()


async def test_trufflehog_comes_first_and_its_raw_secrets_are_dropped(scan: Scan) -> None:
    """Its report holds the secret; ours holds the place."""
    line = json.dumps(TRUFFLEHOG_SAYS)
    program(scan.programs, "trufflehog", f"print({line!r}); print('not json'); sys.exit(1)")
    ran = await scan("trufflehog")
    assert [(one.kind, one.path, one.line, one.verified) for one in scan.context.secrets or []] == [
        ("Github", "settings.py", 3, None)
    ]
    assert ran.last.status == "partial"
    assert str(TRUFFLEHOG_SAYS["Raw"]) not in ran.said + repr(scan.context.secrets)


async def test_a_scanner_that_fails_is_quoted_from_its_errors_only(scan: Scan) -> None:
    """What TruffleHog prints may be the secret itself."""
    program(scan.programs, "trufflehog", "print('the-secret-itself'); sys.exit(1)")
    ran = await scan("trufflehog")
    assert (ran.last.status, ran.last.message) == ("failed", "Secret scan failed: ended with exit code 1")
    assert "the-secret-itself" not in ran.said


async def test_kingfisher_is_asked_where_trufflehog_is_missing(scan: Scan) -> None:
    """200 is its way to say that it found something."""
    text = output_of("kingfisher-2.14.0-redacted.json")
    program(scan.programs, "kingfisher", f"open(arguments[-1], 'w').write({text!r}); sys.exit(200)")
    await scan("trufflehog")
    assert [one.kind for one in scan.context.secrets or []] == ["private-key", "aws-access-token", "github-pat"]


# -- reports -------------------------------------------------------------------------------------------------------------


async def test_reports_go_to_a_folder_of_their_own(scan: Scan, tmp_path: Path) -> None:
    """Named by project and job; null stands for what was not scanned."""
    scan.holds("npm-app")
    ran = await scan("sbom", "uploading", storage=str(tmp_path / "reports"))
    folder = tmp_path / "reports" / "local" / ran.job.id
    assert sorted(path.name for path in folder.iterdir()) == ["results.json", "results.sarif", "sbom.cdx.json"]
    results = json.loads((folder / "results.json").read_text())
    assert len(results["dependencies"]) == 4 and results["vulnerabilities"] is None and results["secrets"] is None


async def test_a_storage_that_cannot_be_written_is_a_warning(scan: Scan, tmp_path: Path) -> None:
    """The extraction is complete all the same."""
    scan.holds("npm-app")
    (tmp_path / "file").write_text("x")
    ran = await scan("sbom", "uploading", storage=str(tmp_path / "file"))
    assert ran.last.status == "failed" and ran.last.message.startswith("Upload failed: ")
    assert ran.job.state is State.COMPLETED
