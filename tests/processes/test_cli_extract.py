"""`holdfast extract`, as people call it: a process, a folder, and what it prints and ends with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.extraction.advisories import update
from tests.support.extraction_steps import FIXTURES, program
from tests.support.git_server import TOKEN, USER, GitServer, commit
from tests.support.processes import ROOT, Processes, runs
from tests.support.waiting import until

FOUND, NOT_CHECKED = 10, 11


@pytest.fixture
def advisories(tmp_path: Path) -> str:
    path = tmp_path / "advisories.db"
    update(path, [str(FIXTURES / "osv")])
    return str(path)


def holdfast(*arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", **env}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments], cwd=cwd, env=given, capture_output=True, text=True, timeout=100
    )


def test_a_folder_is_extracted_without_app_or_server(tmp_path: Path, advisories: str) -> None:
    """Live lines on standard error, what was found on standard output, nothing left behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = holdfast("extract", str(FIXTURES / "npm-app"), "--advisories", advisories, cwd=temporary, TMPDIR=str(temporary))
    assert done.returncode == 0, done.stderr
    assert "✓ SBOM generated - found 4 dependencies" in done.stderr
    assert "✓ Extraction complete (" in done.stderr
    assert "Vulnerabilities  2 (1 critical, 1 high)" in done.stdout
    assert [path for path in temporary.rglob("*") if path.is_file()] == []


def test_credentials_in_an_address_are_used_and_never_shown(tmp_path: Path) -> None:
    """They are taken out of the address before anything is stored or printed."""
    server = GitServer(tmp_path / "served")
    try:
        commit(server.root / "app", {"requirements.txt": b"flask==2.0.1\n"})
        address = server.url.replace("://", f"://{USER}:{TOKEN}@")
        database = f"sqlite:///{tmp_path / 'jobs.db'}"
        done = holdfast("extract", f"{address}/auth/app", "--json", "--database", database, cwd=tmp_path)
    finally:
        server.close()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["source"] == f"{server.url}/auth/app"
    assert TOKEN not in done.stdout + done.stderr
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.glob("jobs.db*"))


def test_json_tells_what_was_not_scanned_from_nothing_found(tmp_path: Path) -> None:
    """Null is not an empty list."""
    done = holdfast("extract", str(FIXTURES / "npm-app"), "--json", cwd=tmp_path)
    results = json.loads(done.stdout)
    assert done.returncode == 0
    assert len(results["dependencies"]) == 4 and results["secrets"] == []
    assert results["vulnerabilities"] is None
    assert results["steps"]["vuln_scan"]["status"] == "unavailable"


def test_sarif_points_at_the_manifest(tmp_path: Path, advisories: str) -> None:
    """Each vulnerability has a rule, a place and a fingerprint."""
    arguments = ["extract", str(FIXTURES / "npm-app"), "--sarif", "--advisories", advisories]
    run = json.loads(holdfast(*arguments, cwd=tmp_path).stdout)["runs"][0]
    assert {one["ruleId"] for one in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    places = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]}
    assert places == {"package-lock.json"}
    assert len({one["partialFingerprints"]["holdfast/v1"] for one in run["results"]}) == len(run["results"]) == 2


@pytest.mark.parametrize(
    ("fixture", "fail_on", "with_advisories", "code"),
    [
        ("npm-app", "critical", True, FOUND),
        ("go-app", "critical", True, 0),
        ("npm-app", "low", False, NOT_CHECKED),
    ],
)
def test_a_gate_passes_only_when_it_could_look(
    tmp_path: Path, advisories: str, fixture: str, fail_on: str, with_advisories: bool, code: int
) -> None:
    """Found, not found, and not looked for have exit codes of their own."""
    given = ["--advisories", advisories] if with_advisories else []
    done = holdfast("extract", str(FIXTURES / fixture), "--fail-on", fail_on, *given, cwd=tmp_path)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "Extraction failed: There is no folder nowhere"),
        ([str(FIXTURES / "empty-repo")], 1, "Extraction failed: No package manifest found at '/'"),
        ([".", "--json", "--sarif"], 2, "--json and --sarif exclude each other"),
        ([".", "--fail-on", "sometimes"], 2, "--fail-on"),
    ],
)
def test_what_went_wrong_is_one_sentence(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    """And the exit code tells a failure from wrong usage."""
    done = holdfast("extract", *arguments, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert message in done.stderr.splitlines()[-1]


async def test_an_interrupted_extraction_ends_its_tools_and_leaves_nothing(processes: Processes, tmp_path: Path) -> None:
    """Ctrl+C in the middle of a tool."""
    noted = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    program(tmp_path / "programs", "cdxgen", f"{noted}\nimport signal; signal.pause()")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"PATH": f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(temporary)}
    running = processes.python("-m", "holdfast", "extract", str(FIXTURES / "npm-app"), env=env)
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    tool = int((tmp_path / "pid").read_text())
    os.kill(running.pid, signal.SIGINT)
    assert await running.exited(40) == 130, running.output
    assert not runs(tool)
    assert [path for path in temporary.rglob("*") if path.is_file()] == []
