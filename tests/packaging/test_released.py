"""What is released: a wheel and an sdist with everything inside, which work where there is no repository."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast.version import VERSION
from tests.support.waiting import until_sync

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist of this working tree."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def home(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the wheel, and no way to the repository: it sees the packages beside us by a plain
    line in a .pth, so that the one which makes our own installation editable is not read."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    python = place / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--disable-pip-version-check", "--no-compile", str(built[0])], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin"


class Project:
    """A folder in which somebody types `holdfast …`."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._program, self.folder = str(home / "holdfast"), folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON", "DATABASE_"))}
        self.env = {**kept, "PATH": f"{home}{os.pathsep}{os.environ['PATH']}"}

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [self._program, *words], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *words: str, output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as sink:
            return subprocess.Popen(
                [self._program, *words], cwd=self.folder, env=self.env, stdout=sink, stderr=sink, start_new_session=True
            )


def files_of_the_package() -> set[str]:
    inside = (path for path in (ROOT / "src" / "holdfast").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT / "src").as_posix() for path in inside}


def test_the_wheel_holds_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    """Templates, static files, SQL, rules and py.typed included."""
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    missing = files_of_the_package() - names
    assert missing == set() and "holdfast/py.typed" in names


def test_the_sdist_holds_what_its_tests_and_documentation_need(built: tuple[Path, Path]) -> None:
    """It can be built, read and tested by itself."""
    with tarfile.open(built[1]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "mkdocs.yml", "docs/reference/cli.md"}
    assert needed | {f"src/{name}" for name in files_of_the_package()} <= names


def test_the_version_is_the_same_everywhere(built: tuple[Path, Path]) -> None:
    """In the package, its metadata and its file names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == VERSION
    assert [path.name.split("-")[1].removesuffix(".tar.gz") for path in built] == [VERSION, VERSION]
    assert "Typing :: Typed" in project["classifiers"]


@pytest.fixture
def dev(home: Path, tmp_path: Path) -> Iterator[tuple[Project, Path]]:
    """`holdfast init demo`, then `holdfast dev` in it, and what dev prints."""
    Project(home, tmp_path).run("init", "demo")
    project, output = Project(home, tmp_path / "demo"), tmp_path / "output"
    running = project.start("dev", "--port", "0", output=output)
    try:
        until_sync(lambda: "Serving http" in output.read_text() or running.poll() is not None, timeout=PATIENCE)
        yield project, output
    finally:
        os.killpg(running.pid, signal.SIGINT)
        running.wait(PATIENCE)


@pytest.mark.timeout(400)  # many short programs, one after the other
def test_init_and_dev_work_from_the_wheel_and_the_seeded_job_is_mended_by_retry(dev: tuple[Project, Path]) -> None:
    """Without the repository: dev prints its address and serves the dashboard, the job that it enqueued fails, a retry turns it
    green, and another one completes."""
    project, output = dev
    address = re.search(r"Serving (http\S+)", output.read_text())
    assert address, output.read_text()
    page = httpx.get(f"{address[1]}/login", timeout=PATIENCE)
    (style, *_) = re.findall(r'href="([^"]+\.css[^"]*)"', page.text)
    assert httpx.get(httpx.URL(f"{address[1]}/login").join(style), timeout=PATIENCE).status_code == 200

    def seeded() -> dict[str, Any]:
        (job,) = json.loads(project.run("jobs", "list", "--task", "press_retry", "--json"))["jobs"]
        return dict(job)

    until_sync(lambda: seeded()["state"] == "failed", timeout=PATIENCE)
    project.run("jobs", "retry", seeded()["id"])
    until_sync(lambda: seeded()["state"] == "completed", timeout=PATIENCE)
    answer = json.loads(project.run("enqueue", "greet", "-a", "name=Ana", "--wait", "--timeout", "50", "--json"))
    assert answer["result"] == "Hello, Ana!"
    assert "Traceback" not in output.read_text()


def test_nothing_of_the_repository_is_seen(home: Path) -> None:
    """The environment of these tests is as clean as it says."""
    probe = "import holdfast, sys; print(holdfast.__file__, *sys.path, sep='\\n')"
    said = subprocess.run([str(home / "python"), "-I", "-c", probe], capture_output=True, text=True, check=True, cwd=home)
    assert [line for line in said.stdout.splitlines() if line.startswith(str(ROOT / "src"))] == []
    assert said.stdout.startswith(str(home.parent))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_our_commands(home: Path, tmp_path: Path, shell: str) -> None:
    """The script is there, and what it asks the program for is answered."""
    assert "_HOLDFAST_COMPLETE" in Project(home, tmp_path).run("completion", shell)


class Terminal:
    """Types what the quickstart shows, block by block, as a newcomer would; `holdfast dev` goes into a terminal of its own."""

    def __init__(self, home: Path, folder: Path) -> None:
        self._home, self.folder, self._output = home, folder, folder / "dev-output"
        self._running: subprocess.Popen[bytes] | None = None
        self._id = ""
        self.said: list[str] = []

    def block(self, kind: str, text: str) -> None:
        if kind == "python":
            name = text.splitlines()[0].removeprefix("# ")
            with (self.folder / name).open("a", encoding="utf-8") as file:
                file.write("\n\n" + text)
            return
        for line in text.splitlines():
            self._type(line.removeprefix("$ "))

    def _type(self, line: str) -> None:
        if line.startswith(("python3 -m venv", "pip install")):
            return  # this environment has the wheel already
        if line.startswith("cd "):
            self.folder = self.folder / line.removeprefix("cd ")
        elif line == "holdfast dev":
            self.stop()
            self._running = Project(self._home, self.folder).start("dev", "--port", "0", output=self._output)
            until_sync(lambda: "Serving http" in self._output.read_text(), timeout=PATIENCE)
        else:
            self._run(line)

    def _run(self, line: str) -> None:
        project = Project(self._home, self.folder)
        if " ID" in line:
            line = line.replace(" ID", f" {self._id}")
        if "--state failed" in line:
            until_sync(lambda: json.loads(project.run("jobs", "list", "--state", "failed", "--json"))["jobs"], timeout=PATIENCE)
            self._id = json.loads(project.run("jobs", "list", "--state", "failed", "--json"))["jobs"][0]["id"]
        done = subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env=project.env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert (done.returncode != 0) == ("# refused" in line), f"{line}\n{done.stdout}{done.stderr}"
        self.said.append(done.stdout)

    def stop(self) -> None:
        if self._running is not None:
            os.killpg(self._running.pid, signal.SIGINT)
            self._running.wait(PATIENCE)
            self._running = None


@pytest.mark.timeout(400)  # many short programs, one after the other
def test_the_quickstart_works_as_it_stands(home: Path, tmp_path: Path) -> None:
    """Every block of it, in its order, with the wheel and without the repository."""
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    assert {kind for kind, _ in blocks} == {"console", "python"}
    terminal = Terminal(home, tmp_path)
    try:
        for kind, text in blocks:
            terminal.block(kind, text)
    finally:
        terminal.stop()
    assert "receipt 7 sent to ana@example.org" in "".join(terminal.said)
    assert "receipt 8 sent to bo@example.org" in "".join(terminal.said)
