"""The Dockerfile, as far as it can be known without building it."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.deployment import ROOT, refusal

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
HADOLINT = Path(sys.executable).with_name("hadolint")


def stages() -> dict[str, str]:
    """Name -> its instructions, with those of the stage that it is made from before them."""
    found: dict[str, str] = {}
    for part in re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]:
        base, name = re.findall(r"^FROM (\S+) AS (\S+)", part)[0]
        found[name] = found.get(base, "") + part
    return found


def last(instruction: str, stage: str) -> str:
    return re.findall(rf"(?m)^{instruction} (.+)$", stages()[stage])[-1]


@pytest.mark.skipif(not HADOLINT.exists() and not shutil.which("hadolint"), reason="hadolint has no wheel for this platform")
def test_the_linter_has_nothing_to_say() -> None:
    """hadolint, all rules but those that the file itself turns off with a reason."""
    program = str(HADOLINT) if HADOLINT.exists() else "hadolint"
    done = subprocess.run([program, "--no-color", str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_base_images_are_pinned_by_version_and_digest() -> None:
    """The same file makes the same image next year."""
    images = dict(re.findall(r"(?m)^ARG (\w+_IMAGE)=(.+)$", DOCKERFILE))
    assert set(images) == {"PYTHON_IMAGE", "NODE_IMAGE"}
    for image in images.values():
        assert re.fullmatch(r"[a-z]+:\d+\.\d+\.\d+-[a-z-]+@sha256:[0-9a-f]{64}", image), image
    bases = {base for base in re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)} - set(stages())
    assert bases == {f"${{{name}}}" for name in images}


def test_what_pip_and_npm_install_is_pinned() -> None:
    """By the constraints, or by a version in the file."""
    for line in re.findall(r"pip install (.+?)(?: \\)?$", DOCKERFILE, re.MULTILINE):
        assert "--constraint deploy/constraints.txt" in line or re.search(r"==\$\{\w+_VERSION\}", line), line
    assert "@cyclonedx/cdxgen@${CDXGEN_VERSION}" in DOCKERFILE
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in re.findall(r"(?m)^ARG \w+_VERSION=(.+)$", DOCKERFILE))


@pytest.mark.parametrize("stage", ["holdfast", "extraction"])
def test_images_run_as_nobody_in_particular_and_in_exec_form(stage: str) -> None:
    """Not root, by number, so that a cluster can check it; the worker is process 1, so SIGTERM reaches it."""
    assert last("USER", stage) == "10001:10001"
    assert json.loads(last("ENTRYPOINT", stage)) == ["holdfast"]
    command = json.loads(last("CMD", stage))
    assert command[0] == "worker"
    assert refusal(command) is None
    assert last("STOPSIGNAL", stage) == "SIGTERM"


def test_the_last_stage_is_the_plain_image() -> None:
    """`docker build .` makes the small one."""
    assert list(stages())[-1] == "holdfast"


def test_the_extraction_image_has_the_scanners() -> None:
    """Semgrep, cdxgen, git, our own extra, and a place for the cache."""
    made = stages()["extraction"]
    assert "DEPSCAN_CACHE_DIR=/tmp/depscan-cache" in made
    for part in ("/opt/semgrep", "/opt/cdxgen", "/usr/local/bin/node", "git", "deploy/extraction_app.py /app/tasks.py"):
        assert part in made, part
    assert ".[extraction]" in stages()["build-extraction"]


def test_all_that_is_copied_exists_and_is_not_ignored() -> None:
    """A path that .dockerignore keeps out would fail at build time only."""
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", DOCKERFILE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists() and source in allowed, source


def test_the_constraints_are_what_these_tests_ran_with() -> None:
    """Everything that the image installs has one exact version there, and one that fits what we ask for."""
    spec = importlib.util.spec_from_file_location("constraints", ROOT / "tools" / "constraints.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    pinned = dict(line.split("==") for line in tool.FILE.read_text().splitlines() if not line.startswith("#"))
    missing = set(tool.closure("holdfast", tool.EXTRAS)) - set(pinned)
    assert missing == set(), "run python tools/constraints.py"
    from importlib import metadata

    for text in metadata.requires("holdfast") or []:
        requirement = Requirement(text)
        version = pinned.get(requirement.name.lower())
        assert version is None or requirement.specifier.contains(version, prereleases=True), text


def test_the_application_of_the_extraction_image_loads(tmp_path: Path) -> None:
    """It migrates a database, as the first container of a deployment does."""
    shutil.copy(ROOT / "deploy" / "extraction_app.py", tmp_path / "tasks.py")
    command = [sys.executable, "-m", "holdfast", "--database", f"sqlite:///{tmp_path}/jobs.db", "--app", "tasks:hf", "migrate"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "extraction/" in done.stdout
