"""An environment of its own for each queue, made once and kept in bench/.cache."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.catalog import Peer

CACHE = Path(__file__).parents[1] / ".cache"


class Unusable(Exception):
    """A queue cannot be measured here; the message says why, and what would help."""


def prepare_cache() -> None:
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")


def python_of(peer: Peer) -> str:
    """The interpreter that has the queue installed; made at the first call."""
    if not peer.packages:
        return sys.executable
    folder = CACHE / peer.name
    python, ready = folder / "bin" / "python", folder / ".ready"
    wanted = " ".join(peer.packages)
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {peer.name} ...", flush=True)
        _install(peer, folder, python)
        ready.write_text(wanted)
    return str(python)


def _install(peer: Peer, folder: Path, python: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([_interpreter(peer.python), "-m", "venv", str(folder)], check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), "pip failed")
        raise Unusable(f"could not be installed: {last}")


def _interpreter(least: tuple[int, int]) -> str:
    if sys.version_info >= least:
        return sys.executable
    names = [f"python3.{minor}" for minor in range(least[1], least[1] + 5)]
    own_builds = glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))
    for found in [*filter(None, map(shutil.which, names)), *sorted(own_builds)]:
        if _runs(found, least):
            return found
    raise Unusable(f"needs Python {least[0]}.{least[1]} or newer, and none was found beside {sys.version.split()[0]}")


def _runs(interpreter: str, least: tuple[int, int]) -> bool:
    """A shim may be on the path without the version behind it."""
    code = f"import sys, venv; sys.exit(sys.version_info < {least})"
    return subprocess.run([interpreter, "-c", code], capture_output=True).returncode == 0
