"""Simulate many seeds on all cores, or one of them with its whole story: docs/simulation.md.

make simulate                     2,000 seeds
make simulate RUNS=100000         as many as you like, from SEED on (0 unless given)
make simulate SEED=17             that one alone, told step by step
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.simulation.simulate import MakeBase, Told, simulate
from tests.simulation.stores import SqliteBase

FAILURES_MAX = 5
TELL_EVERY = 1000


def _without_trace(told: Told) -> Told:
    return told if told.wrong else told._replace(trace=[])


def one(seed: int) -> Told:
    return _without_trace(simulate(seed))


def all_of(seeds: range, processes: int) -> Iterator[Told]:
    if processes == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.Pool(processes, maxtasksperchild=50) as pool:
        yield from pool.imap(one, seeds, chunksize=20)


def on_postgres(seeds: range) -> Iterator[Told]:
    """One after the other: each has the server to itself."""
    from tests.simulation.stores import PostgresBase
    from tests.support.postgres import NOT_DURABLE, Databases, OwnServer

    server = OwnServer(**NOT_DURABLE)
    try:
        databases = Databases(server.start().url)
        for seed in seeds:
            url = databases.create()
            make: MakeBase = lambda clock, url=url: PostgresBase(clock, url)  # type: ignore[misc]  # noqa: E731
            yield _without_trace(simulate(seed, make))
            databases.drop(url)
        databases.close()
    finally:
        server.remove()


def tell_one(seed: int) -> int:
    told = simulate(seed, SqliteBase)
    print("\n".join(told.trace))
    print(told.wrong or f"seed {seed}: every promise was kept in {told.steps:,} steps; it ends with {told.states}")
    return 1 if told.wrong else 0


def tell_all(stories: Iterator[Told], runs: int) -> int:
    began, failures = time.monotonic(), 0
    totals: Counter[str] = Counter()
    for number, told in enumerate(stories, 1):
        totals.update({"steps": told.steps, "moves": told.moves, "virtual seconds": int(told.seconds), **told.faults})
        if told.wrong:
            failures += 1
            print(told.story(), flush=True)
        if number % TELL_EVERY == 0 or number == runs or failures == FAILURES_MAX:
            rate = number / (time.monotonic() - began)
            print(f"{number:,} of {runs:,} seeds, {failures} with something wrong, {rate:.0f} a second", flush=True)
        if failures == FAILURES_MAX:
            break
    print(", ".join(f"{name} {count:,}" for name, count in totals.items()))
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="the first one, or the only one where --runs is not given")
    parser.add_argument("--runs", type=int, help="how many seeds")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.seed is not None and given.runs is None and given.store == "sqlite":
        return tell_one(given.seed)
    first, runs = given.seed or 0, given.runs or (2000 if given.store == "sqlite" else 50)
    seeds = range(first, first + runs)
    return tell_all(on_postgres(seeds) if given.store == "postgres" else all_of(seeds, given.processes), runs)


if __name__ == "__main__":
    sys.exit(main())
