"""`python -m bench`: measure Holdfast on both stores beside the raw floor, print a table, write bench/results/latest.json."""

from __future__ import annotations

import argparse
import time
from typing import Any

import msgspec
import uvloop

from bench import report
from bench.metrics import advisories, drain, enqueue, extraction, flat, follow, http, idle, latency, logs, pages, redact, start
from bench.noise import fdatasync_milliseconds
from bench.places import Place, PostgresPlace, SqlitePlace
from bench.plan import QUICK, Line, Plan

METRICS: dict[str, Any] = {
    "enqueue": enqueue,
    "drain": drain,
    "latency": latency,
    "idle": idle,
    "start": start,
    "flat": flat,
    "logs": logs,
    "follow": follow,
    "redact": redact,
    "http": http,
    "pages": pages,
    "advisories": advisories,
    "extraction": extraction,
}
SLOW = {"idle", "flat", "http", "pages", "advisories", "extraction"}
"""Left out of --quick unless asked for: a shorter window would see no heartbeat, and what is large takes time to fill."""


def main() -> None:
    asked = _arguments()
    plan = QUICK if asked.quick else Plan()
    if asked.runs:
        plan = msgspec.structs.replace(plan, runs=asked.runs)
    plan = msgspec.structs.replace(plan, page=asked.page)
    chosen = asked.only or [name for name in METRICS if not (asked.quick and name in SLOW)]
    began = time.monotonic()
    uvloop.run(_measure(plan, chosen, asked.store))
    print(f"\n{time.monotonic() - began:.0f} s; every sample is in bench/results/latest.json")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one sample each, less of everything, no idle: under a minute")
    parser.add_argument("--only", action="append", choices=list(METRICS), help="this metric; may be given more than once")
    parser.add_argument("--store", choices=["postgres", "sqlite"], help="this store only")
    parser.add_argument("--runs", type=int, help="samples of each figure (default: 3, with --quick 1)")
    parser.add_argument("--page", default="", metavar="TEXT", help="of the metric pages only addresses that have this in them")
    return parser.parse_args()


async def _measure(plan: Plan, chosen: list[str], store: str | None) -> None:
    places: list[Place] = [place for place in (PostgresPlace(), SqlitePlace()) if store in (None, place.name)]
    opened: list[Place] = []
    try:
        for place in places:
            await place.open()
            opened.append(place)
        version = [await place.admin.fetchval("SHOW server_version") for place in places if isinstance(place, PostgresPlace)]
        machine = report.machine(fdatasync_milliseconds(), version[0] if version else None)
        print(", ".join(f"{name} {value}" for name, value in machine.items()))
        lines: list[Line] = []
        for name in chosen:
            print(f"measuring {name} ...", flush=True)
            lines += await METRICS[name].measure(places, plan)
        print(f"\n{report.table(sorted(lines, key=lambda line: line.store))}")
        if "pages" in chosen:
            print(f"\n{pages.summary([line for line in lines if line.metric == 'pages'])}")
        if "start" in chosen and not any(line.metric == "start" for line in lines):
            print("cold start was not measured: there is no `holdfast` command yet")
        report.write_json(lines, plan, machine)
    finally:
        for place in opened:
            await place.close()


if __name__ == "__main__":
    main()
