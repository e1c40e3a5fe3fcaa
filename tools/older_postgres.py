"""The tests that need PostgreSQL, once more on Debian's (the wheel's is newer): a server of its own, started and removed here.

Arguments are passed on to pytest; without any, all tests of that kind run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOMES = Path("/usr/lib/postgresql")
MISSING = "There is no PostgreSQL of Debian here: apt-get install postgresql"
OPTIONS = "-h '' -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200"


def programs() -> Path | None:
    return next(iter(sorted(HOMES.glob("*/bin/postgres"))), None)


@contextmanager
def server(home: Path) -> Iterator[str]:
    """Its URL. A server refuses to run as root, so it then runs as Debian's user for it."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    data, as_user = folder / "data", []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        command = [*as_user, str(home / program), *arguments]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)

    run("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync")
    run("pg_ctl", "-w", "-D", str(data), "-l", str(folder / "log"), "-o", f"{OPTIONS} -k {folder}", "start")
    try:
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder)


def main(arguments: list[str]) -> int:
    found = programs()
    if found is None:
        print(MISSING)
        return 1
    asked = arguments or ["--numprocesses", "2", "--dist", "loadfile", "--ignore", "tests/browser"]
    with server(found.parent) as url:
        env = {**os.environ, "HOLDFAST_TEST_POSTGRES_URL": url}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "--quiet", "--store", "postgres", *asked], cwd=ROOT, env=env
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
