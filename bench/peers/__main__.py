"""`python -m bench.peers`: measure Holdfast beside other queues, print the tables, write bench/results/peers.{md,json,svg}."""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from bench import report as own_report
from bench.noise import fdatasync_milliseconds, loop_milliseconds
from bench.peers import chart, metrics
from bench.peers.catalog import PEERS, Peer
from bench.peers.environments import CACHE, Unusable, prepare_cache, python_of
from bench.peers.plan import FULL, QUICK, Plan
from bench.peers.processes import kill_all
from bench.peers.records import Record, Records
from bench.peers.report import Report
from bench.peers.scene import Scene
from bench.peers.stores import Postgres, Redis, SqliteFiles, Store

THREE_TIMES = (
    "enqueue_one",
    "enqueue_many",
    "drain_one",
    "drain_two",
    "latency",
    "drain_backlog",
    "killed_worker",
    "crashed_database",
)
ONCE = ("idle", "dead_rows")
"""They take minutes, and hardly differ from time to time."""
ABOUT = CACHE / "about.json"
_STORES: dict[str, Callable[[], Store]] = {"postgres": Postgres, "redis": Redis, "sqlite": SqliteFiles}


class Run:
    def __init__(self, plan: Plan, records: Records, *, quick: bool) -> None:
        self._plan = plan
        self._records = records
        self._quick = quick
        self._stores: dict[str, Store] = {}
        self._scenes: dict[str, Scene] = {}
        self.about: dict[str, dict[str, Any]] = msgspec.json.decode(ABOUT.read_bytes()) if ABOUT.exists() else {}

    async def open(self, peers: list[Peer]) -> None:
        for peer in peers:
            try:
                scene = Scene(peer, await self._store(peer), python_of(peer), self._plan)
                await scene.open()
                self._scenes[peer.name], self.about[peer.name] = scene, scene.about
            except (Unusable, RuntimeError) as why:
                print(f"{peer.name} is left out: {why}")
                self.about[peer.name] = {"unusable": str(why)}
        ABOUT.write_bytes(msgspec.json.encode(self.about))

    async def _store(self, peer: Peer) -> Store:
        if peer.store not in self._stores:
            store = _STORES[peer.store]()
            await store.open()
            self._stores[peer.store] = store
        return self._stores[peer.store]

    async def measure(self, chosen: list[str]) -> None:
        """The queues take turns, so that a drift of the machine meets all of them."""
        for metric in chosen:
            for sample in range(self._plan.samples if metric in THREE_TIMES else 1):
                for name, scene in self._scenes.items():
                    if not self._records.has(name, metric, sample):
                        await self._sample(scene, metric, sample)
            if metric == "drain_backlog":
                for scene in self._scenes.values():
                    await scene.forget(self._plan.backlog)

    async def _sample(self, scene: Scene, metric: str, sample: int) -> None:
        record = Record(peer=scene.peer.name, metric=metric, sample=sample, quick=self._quick)
        record.at = datetime.now(UTC).isoformat(timespec="seconds")
        record.calibration_ms = round(loop_milliseconds(), 1)
        began = time.monotonic()
        try:
            record.figures = await getattr(metrics, metric)(scene)
        except Unusable as why:
            record.reason = str(why)
        except Exception as error:  # one queue's trouble must not end an hour's run
            record.reason, record.error = f"{type(error).__name__}: {error}".splitlines()[0][:200], True
        self._records.add(record)
        shown = record.reason or ", ".join(f"{name} {value:,.1f}" for name, value in record.figures.items())
        print(f"{metric} {sample + 1}, {scene.peer.name}: {shown} ({time.monotonic() - began:.0f} s)", flush=True)

    def machine(self) -> dict[str, Any]:
        postgres = self._stores.get("postgres")
        return own_report.machine(fdatasync_milliseconds(), postgres.version if isinstance(postgres, Postgres) else None)

    async def close(self) -> None:
        await kill_all()
        for store in self._stores.values():
            await store.close()


async def measure(asked: argparse.Namespace) -> bool:
    plan = QUICK if asked.quick else FULL
    prepare_cache()
    records = Records(quick=asked.quick, resume=asked.resume)
    run = Run(plan, records, quick=asked.quick)
    work = asyncio.current_task()
    assert work is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, work.cancel)
    broken_off = False
    try:
        await run.open([peer for peer in PEERS if not asked.peer or peer.name in asked.peer])
        machine = run.machine()
        await run.measure(asked.only or [*THREE_TIMES, *ONCE])
    except asyncio.CancelledError:
        broken_off = True
        machine = run.machine()
    finally:
        await run.close()
    report = Report(records, plan, machine, run.about)
    report.write()
    chart.write(report, f"{machine['processor']}, {machine['cores']} cores, PostgreSQL {machine['postgres']}, fsync on")
    print(f"\n{report.markdown()}")
    return broken_off


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one sample of each, shorter runs")
    parser.add_argument("--resume", action="store_true", help="keep what the last run has measured and go on")
    parser.add_argument("--peer", action="append", choices=[peer.name for peer in PEERS], help="this queue; may be repeated")
    parser.add_argument("--only", action="append", choices=[*THREE_TIMES, *ONCE], help="this metric; may be repeated")
    if asyncio.run(measure(parser.parse_args())):
        print("Broken off; --resume goes on from here.")


if __name__ == "__main__":
    main()
