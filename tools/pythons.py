"""Runs the suite on every Python that is found, each in an environment of its own below `.venv/pythons`.

`PYTHONS` names them (names or paths); else they are python3.11 and newer on the PATH and among pyenv's versions. Arguments are
passed on to `tools/suite.py`. Where a Python that pyproject.toml does not name fails to install, it is reported and left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MINORS = range(11, 21)
VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"

Version = tuple[int, int, int]


def wanted() -> list[str]:
    return os.environ.get("PYTHONS", "").split() or [f"python3.{minor}" for minor in MINORS]


def candidates(names: list[str]) -> Iterator[str]:
    pyenv = os.environ.get("PYENV_ROOT") or _printed("pyenv", "root")
    for name in names:
        if found := shutil.which(name):
            yield found
        if pyenv and "/" not in name:  # its shim on the PATH runs only the versions that are active
            yield from map(str, Path(pyenv, "versions").glob(f"{name.removeprefix('python')}*/bin/{name}"))


def found() -> dict[Version, str]:
    """Version -> interpreter, oldest first: one of each minor version. A shim of pyenv without its Python does not run."""
    by_minor: dict[tuple[int, int], tuple[Version, str]] = {}
    for interpreter in candidates(wanted()):
        if printed := _printed(interpreter, "-c", VERSION):
            major, minor, micro = map(int, printed.split("."))
            by_minor.setdefault((major, minor), ((major, minor, micro), interpreter))
    return dict(sorted(by_minor.values()))


def runs(name: str) -> bool:
    return any(_printed(interpreter, "-c", VERSION) for interpreter in candidates([name]))


def supported() -> set[tuple[int, int]]:
    """The versions that pyproject.toml names."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    versions = [classifier.rpartition(" ")[2].split(".") for classifier in classifiers if ":: Python :: 3." in classifier]
    return {(int(major), int(minor)) for major, minor in versions}


def run_on(version: Version, interpreter: str, arguments: list[str]) -> str:
    """Set up and run the suite. Returns how it went; what begins with "passed" or "left out" is fine."""
    home = ROOT / ".venv" / "pythons" / _text(version)
    python, ready = str(home / "bin" / "python"), home / ".ready"
    print(f"\nPython {_text(version)}:", flush=True)
    if not ready.exists() or ready.stat().st_mtime < (ROOT / "pyproject.toml").stat().st_mtime:
        install = [python, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "--editable", ".[dev]"]
        if subprocess.call([interpreter, "-m", "venv", "--clear", home]) or subprocess.call(install, cwd=ROOT):
            return "did not install" if version[:2] in supported() else "left out: did not install"
        ready.touch()
    code = subprocess.call([python, "tools/suite.py", *arguments], cwd=ROOT)
    return f"FAILED with exit code {code}" if code else "passed"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the suite on every Python that is found.", allow_abbrev=False)
    parser.add_argument("--list", action="store_true", help="only print those that pyproject.toml names, oldest first")
    options, extra = parser.parse_known_args(arguments)
    if options.list:
        print(*(interpreter for version, interpreter in found().items() if version[:2] in supported()), sep="\n")
        return 0
    results = {version: run_on(version, interpreter, extra) for version, interpreter in found().items()}
    print("".join(f"\nPython {_text(version)}: {result}" for version, result in results.items()))
    if not os.environ.get("PYTHONS"):
        for minor in sorted(supported() - {version[:2] for version in results}):
            print(f"Python {_text(minor)}: not found")
    missing = [name for name in os.environ.get("PYTHONS", "").split() if not runs(name)]
    for name in missing:
        print(f"{name}: not found. Name one that runs: make test-pythons PYTHONS=python3.13")
    fine = all(result.startswith(("passed", "left out")) for result in results.values())
    return 0 if fine and results and not missing else 1


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _printed(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
