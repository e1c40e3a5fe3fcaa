"""Would a test notice? A seeded sample of guards is broken, one at a time in a copy of the tree, and its tests are run.

`make mutants-coverage` notes once which test runs which lines, which is slow. `make mutants SEED=7 SAMPLE=300 PARALLEL=2
ONLY=src/holdfast/limits` goes through a sample and can be stopped: results stay in build/mutants/results.jsonl. Survivors are
printed with their change. Those that change nothing stand in tools/mutants-equivalent.toml, each with its reason.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.mutants_copy import START_SECONDS, Copy, Verdict
from tools.mutants_find import Mutant, find
from tools.mutants_plugin import FOLDER, SOURCE
from tools.mutants_tests import Covering, combine, within

ROOT = Path(__file__).resolve().parents[1]
BUDGET_SECONDS = 60.0
"""Of tests for each mutant. A survivor of these gets the others of its tests, up to four times as many seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("what", choices=("collect", "run", "list"))
    parser.add_argument("tests", nargs="*", help="for collect: arguments of pytest, all tests without")
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], help="a prefix of paths, such as src/holdfast/limits")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds of tests for each mutant")
    parser.add_argument("--postgres", action="store_true", help="start one PostgreSQL for all, from the wheel of the tests")
    given = parser.parse_intermixed_args(arguments)
    folder = given.root / "build" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    if given.what == "collect":
        return collect(given.root, folder, given.tests, given.parallel)
    mutants = [one for one in find(given.root) if one.path.startswith(tuple(given.only) or "")]
    sample = sampled(mutants, given.seed, given.sample)
    if given.what == "list":
        for mutant in sample:
            print(diff_of(mutant))
        return 0
    if not (folder / "lines").exists():
        print("Coverage is missing. Run `make mutants-coverage` first.")
        return 2
    with postgres() if given.postgres else contextlib.nullcontext():
        return Campaign(given.root, folder, sample, given.parallel, given.budget).run()


def sampled(mutants: Sequence[Mutant], seed: int, size: int) -> list[Mutant]:
    """A change to one file leaves the sample of all others as it was, and with it their results."""

    def place(mutant: Mutant) -> str:
        told = f"{seed}\0{mutant.path}\0{mutant.block}\0{mutant.old}\0{mutant.new}\0{mutant.kind}"
        return hashlib.sha256(told.encode()).hexdigest()

    return sorted(mutants, key=place)[:size]


def collect(root: Path, folder: Path, tests: Sequence[str], parallel: int) -> int:
    for left in [*folder.glob("coverage.*"), *folder.glob("seconds-*.json")]:
        left.unlink()  # of a run that was stopped
    environment = {**os.environ, FOLDER: str(folder), SOURCE: str(root / "src"), "PYTHONPATH": f"{root / 'src'}:{root}:{ROOT}"}
    side_by_side = ["--numprocesses", str(parallel), "--dist", "loadfile"] if parallel > 1 else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants_plugin", "-p", "no:cacheprovider", *side_by_side]
    code = subprocess.run([*command, *tests], cwd=root, env=environment).returncode
    combine(folder, root, "src")
    print(f"Coverage of each test is in {folder.relative_to(root)}.")
    return 0 if code in (0, 1) else code  # a test that fails is left out


@contextlib.contextmanager
def postgres() -> Iterator[None]:
    """One server for all runs: those that are killed leave databases in it, and no servers."""
    if "HOLDFAST_TEST_POSTGRES_URL" in os.environ:
        yield
        return
    from tests.support.postgres import NOT_DURABLE, OwnServer

    server = OwnServer(**NOT_DURABLE)
    try:
        os.environ["HOLDFAST_TEST_POSTGRES_URL"] = server.start().url
        yield
    finally:
        os.environ.pop("HOLDFAST_TEST_POSTGRES_URL", None)
        server.remove()


class Campaign:
    def __init__(self, root: Path, folder: Path, sample: Sequence[Mutant], parallel: int, budget: float) -> None:
        self._root, self._sample, self._parallel, self._budget = root, sample, parallel, budget
        self._covering = Covering(root, "src", folder)
        self._tests = {mutant.id: self._covering.tests_of(mutant) for mutant in sample}
        self._results = folder / "results.jsonl"
        self._equivalents = load_equivalents(root / "tools" / "mutants-equivalent.toml")
        self._writing = threading.Lock()

    def run(self) -> int:
        done = self._done()
        ahead = [one for one in self._sample if one.id not in done and self._tests[one.id] and not self._reason(one)]
        self._tell_plan(len(self._sample) - len(ahead), ahead)
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(self._parallel) as pool:
            for _ in range(min(self._parallel, len(ahead))):
                copies.put(stack.enter_context(Copy(self._root)))
            try:
                list(pool.map(lambda mutant: self._try(mutant, copies), ahead))
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
        return self._report(self._done())

    def _try(self, mutant: Mutant, copies: queue.SimpleQueue[Copy]) -> None:
        copied = copies.get()
        try:
            tests, seconds = self._tests[mutant.id], self._covering.seconds
            first = within(tests, seconds, self._budget)
            verdict = copied.verdict(mutant, first, seconds)
            rest = within(tests[len(first) :], seconds, self._budget * 4)
            if verdict.name == "survived" and rest:
                verdict = copied.verdict(mutant, rest, seconds)._replace(run=len(first) + len(rest))
        finally:
            copies.put(copied)
        self._keep(mutant, verdict)

    def _keep(self, mutant: Mutant, verdict: Verdict) -> None:
        row: dict[str, Any] = {"id": mutant.id, "verdict": verdict.name, "by": verdict.by}
        row |= {"run": verdict.run, "of": len(self._tests[mutant.id])}
        with self._writing, self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "path": mutant.path, "line": mutant.lines[0], "new": mutant.new}) + "\n")
        print(f"{verdict.name:9} {mutant.path}:{mutant.lines[0]} {mutant.kind}", flush=True)

    def _done(self) -> dict[str, dict[str, Any]]:
        """A survivor is tried again once other tests run it."""
        lines = self._results.read_text(encoding="utf-8").splitlines() if self._results.exists() else []
        rows = {row["id"]: row for row in map(json.loads, lines)}
        return {id: row for id, row in rows.items() if row["verdict"] == "killed" or row["of"] == len(self._tests.get(id, ()))}

    def _reason(self, mutant: Mutant) -> str | None:
        return self._equivalents.get((mutant.path, " ".join(mutant.old.split()), " ".join(mutant.new.split())))

    def _tell_plan(self, known: int, ahead: Sequence[Mutant]) -> None:
        seconds = self._covering.seconds
        least = most = 0.0
        for tests in (self._tests[mutant.id] for mutant in ahead):
            least += START_SECONDS + min(seconds[name] for name in tests)
            most += 2 * START_SECONDS + sum(seconds[name] for name in within(tests, seconds, self._budget * 5))
        minutes = f"{least / self._parallel / 60:.0f} to {most / self._parallel / 60:.0f} minutes"
        print(f"{len(self._sample)} mutants: {known} known or without tests, {len(ahead)} to run, about {minutes}.", flush=True)
        if self._covering.changed:
            print(f"{len(self._covering.changed)} files changed since `make mutants-coverage`; their lines may be off.")

    def _report(self, done: dict[str, dict[str, Any]]) -> int:
        verdicts = Counter(self._verdict(one, done) for one in self._sample)
        survivors = [one for one in self._sample if self._verdict(one, done) == "survived"]
        for mutant in survivors:
            row = done[mutant.id]
            print(f"\n{diff_of(mutant)}\n  survived {row['run']} of the {row['of']} tests that run it")
        unreached = [one for one in self._sample if self._verdict(one, done) == "no test"]
        for mutant in unreached:
            print(f"\n{diff_of(mutant)}\n  no test runs it in its own process")
        print("\n" + ", ".join(f"{n} {name}" for name, n in sorted(verdicts.items())))
        return 1 if survivors else 0

    def _verdict(self, mutant: Mutant, done: dict[str, dict[str, Any]]) -> str:
        if self._reason(mutant):
            return "equivalent"
        if not self._tests[mutant.id]:
            return "no test"
        return str(done[mutant.id]["verdict"]) if mutant.id in done else "not run"


def load_equivalents(path: Path) -> dict[tuple[str, str, str], str]:
    """By path, what stands there and what it became, whatever the line."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["equivalent"] if path.exists() else []
    return {(one["path"], " ".join(one["old"].split()), " ".join(one["new"].split())): one["reason"] for one in listed}


def diff_of(mutant: Mutant) -> str:
    old = "\n".join(f"  - {line}" for line in mutant.old.strip().splitlines())
    new = "\n".join(f"  + {line}" for line in (mutant.new.strip() or "(nothing)").splitlines())
    where = f"{mutant.path}:{mutant.lines[0]}" + (f" ({mutant.block})" if mutant.block else "")
    return f"{where}: {mutant.kind}\n{old}\n{new}"


if __name__ == "__main__":
    sys.exit(main())
