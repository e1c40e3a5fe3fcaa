"""A copy of the tree in which one mutant at a time is tried; the working files are never written."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tools.mutants_find import Mutant

START_SECONDS = 6.0
SLOWER = 4.0
"""How much longer tests may take than when they were noted: the machine may be busy, and a failing test waits."""
LEAST_SECONDS, MOST_SECONDS = 90.0, 900.0
END_SECONDS = 20.0
FAILED, NOTHING_FAILED = 1, 0


class Verdict(NamedTuple):
    name: str
    """killed, survived, timeout, or invalid: these tests cannot be run in the copy."""
    run: int
    by: str = ""


class Copy:
    _changes = itertools.count(int(time.time()) - 10_000_000)

    def __init__(self, root: Path) -> None:
        self._root = root
        self._passes: set[str] = set()
        self._unfit: set[str] = set()

    def __enter__(self) -> Self:
        self._at = Path(tempfile.mkdtemp(prefix="holdfast-mutants-"))
        listed = subprocess.run(
            ["git", "ls-files", "-coz", "--exclude-standard"], cwd=self._root, capture_output=True, check=True
        ).stdout.split(b"\0")
        for name in map(os.fsdecode, filter(None, listed)):
            if (self._root / name).is_file():
                (self._at / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self._root / name, self._at / name)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        shutil.rmtree(self._at, ignore_errors=True)

    def verdict(self, mutant: Mutant, tests: Sequence[str], seconds: Mapping[str, float]) -> Verdict:
        """A test kills only if it passes without the change: some cannot be run in a copy, or fail at times."""
        asked = [name for name in tests if name not in self._unfit]
        while asked:
            code, failed = self._try(mutant, asked, seconds)
            if code == NOTHING_FAILED:
                return Verdict("survived", len(asked))
            if code is None:
                return Verdict("timeout", len(asked))
            suspects = [failed] if failed in asked else asked
            if self._passes.issuperset(suspects) or self._run(suspects, seconds)[0] == NOTHING_FAILED:
                self._passes.update(suspects)
                return Verdict("killed", len(asked), failed)
            if suspects == asked and len(asked) > 1:
                return Verdict("invalid", len(asked), failed)
            self._unfit.update(suspects)
            asked = [name for name in asked if name not in self._unfit]
        return Verdict("invalid", 0)

    def _try(self, mutant: Mutant, tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[int | None, str]:
        path = self._at / mutant.path
        source = path.read_bytes()
        self._write(path, mutant.applied_to(source))
        try:
            return self._run(tests, seconds)
        finally:
            self._write(path, source)

    def _write(self, path: Path, content: bytes) -> None:
        """With a time of its own: a compiled file holds for the whole second and size of its source."""
        path.write_bytes(content)
        moment = next(self._changes)
        os.utime(path, (moment, moment))

    def _run(self, tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[int | None, str]:
        """Exit code, None beyond the time; and the first test that failed."""
        limit = START_SECONDS + SLOWER * sum(seconds.get(name, 1.0) for name in tests)
        paths = [self._at / "src", self._at]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-rfE",
            "--tb=no",
            "-p",
            "no:cacheprovider",
            *tests,
        ]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command,
                cwd=self._at,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(min(max(limit, LEAST_SECONDS), MOST_SECONDS))
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
            output.seek(0)
            told = output.read().decode(errors="replace")
        ends = [line.split(" ", 1)[1] for line in told.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        failed = (name for name in tests for end in ends if end == name or end.startswith(f"{name} - "))
        return code, next(failed, ends[0] if ends else "")


def _end(process: subprocess.Popen[bytes]) -> None:
    """First as Ctrl+C: then tests stop the programs that they have started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
