"""The same faults at the same seconds against Holdfast, pgqueuer and procrastinate: what is lost, what ends, how long it takes.

`python -m tools.chaos_peers --rounds 1 --seed 7`. Each queue on a PostgreSQL of its own behind the same wire, with four worker
processes, the same producer, the same body and the quickest sane rescue it has (bench/peers/queues). A worker that ends is
started again. `--report` writes the table into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from typing import Any, NamedTuple

import psycopg

from bench.peers.catalog import PEERS, Peer
from bench.peers.environments import Unusable, prepare_cache, python_of
from bench.peers.processes import Child, Workers, kill_all
from bench.peers.tally import Tally
from tests.support.postgres import OwnServer
from tools import pages
from tools.chaos_wire import Wire
from tools.peer_faults import Faults, planned

QUEUES = ("holdfast", "pgqueuer", "procrastinate")
WORKERS = 4
PER_SECOND = 50
FAULT_SECONDS = 40.0
SETTLE_SECONDS = 45.0
START_SECONDS = 60.0
COLUMNS = (
    "queue",
    "seed",
    "acknowledged",
    "refused calls",
    "completed",
    "lost",
    "ended twice",
    "workers that ended by themselves",
    "all done after",
)


class Outcome(NamedTuple):
    queue: str
    seed: int
    acknowledged: int
    refused: int
    completed: int
    lost: int
    """Acknowledged, and not done by the end of the settling time: for whoever waits that is the same."""
    twice: int
    ended_by_themselves: int
    seconds: float | None
    """After the last fault; None: never, within the time."""

    def row(self) -> str:
        after = f"{self.seconds:.1f} s" if self.seconds is not None else f"not within {SETTLE_SECONDS:.0f} s"
        return f"| {' | '.join(str(cell) for cell in (*self[:-1], after))} |"


class Round:
    """One queue under the faults of one seed."""

    def __init__(self, peer: Peer, seed: int, server: OwnServer, wire: Wire) -> None:
        self._peer = peer
        self._seed = seed
        self._server = server
        self._wire = wire
        self._python = python_of(peer)
        self._acknowledged = Tally()

    async def run(self) -> Outcome:
        about = await self._act(self._server.url, "describe")
        await self._act(self._server.url, "setup")
        workers = Workers(self._python, self._peer.name, self._wire.url, gentle=True)
        try:
            await workers.start(WORKERS)
            outcome = await self._outcome(workers, about["unfinished"])
            return outcome._replace(queue=f"{self._peer.title} {about['version']}")
        finally:
            await workers.close()
            self._acknowledged.remove()

    async def _outcome(self, workers: Workers, unfinished: str) -> Outcome:
        faults = Faults(workers, self._server, self._wire, WORKERS)
        producer = await Child.start(
            *(self._python, self._peer.name, self._wire.url, "produce"),
            *(str(PER_SECOND), str(FAULT_SECONDS), str(self._acknowledged.path)),
        )
        await producer.ready()
        producer.go()
        await faults.run(planned(self._seed, FAULT_SECONDS, WORKERS))
        try:
            sent = await producer.answer(FAULT_SECONDS)
        except (RuntimeError, TimeoutError):  # it hangs or fell; what it was told counts all the same
            sent = {"sent": 0, "refused": 0}
            await producer.kill()
        over = time.monotonic()
        seconds = await self._settled(workers, faults, unfinished, over)
        wanted, done = set(self._acknowledged.values()), Counter(workers.tally.values())
        missing = len(wanted - set(done))
        stuck = 0 if seconds is not None else self._left(unfinished)
        lost = min(len(wanted), max(missing, stuck))
        return Outcome(
            queue=self._peer.title,
            seed=self._seed,
            acknowledged=len(wanted),
            refused=sent["refused"],
            completed=len(wanted) - lost,
            lost=lost,
            twice=sum(count > 1 for count in done.values()),
            ended_by_themselves=faults.ended_by_themselves,
            seconds=seconds,
        )

    async def _settled(self, workers: Workers, faults: Faults, unfinished: str, over: float) -> float | None:
        """How long after the last fault everything was done, in the tally and in the queue's own tables."""
        wanted = set(self._acknowledged.values())
        while (taken := time.monotonic() - over) < SETTLE_SECONDS:
            await faults.start_again()
            if wanted <= set(workers.tally.values()) and not self._left(unfinished):
                return taken
            await asyncio.sleep(0.2)
        return None

    def _left(self, unfinished: str) -> int:
        with psycopg.connect(self._server.url, autocommit=True) as admin:
            row: Any = admin.execute(unfinished.encode()).fetchone()
        return int(row[0])

    async def _act(self, url: str, part: str) -> Any:
        child = await Child.start(self._python, self._peer.name, url, part)
        try:
            await child.ready()
            child.go()
            return await child.answer(START_SECONDS)
        finally:
            await child.kill()


async def one_round(peer: Peer, seed: int) -> Outcome:
    server = OwnServer()
    wire: Wire | None = None
    try:
        wire = await Wire(server.start().url).listen()
        return await Round(peer, seed, server, wire).run()
    finally:
        await kill_all()
        if wire is not None:
            with contextlib.suppress(OSError):
                await wire.close()
        server.remove()


def table(outcomes: list[Outcome]) -> str:
    about = f"{pages.where_and_when()}; {WORKERS} workers, {PER_SECOND} jobs/s for {FAULT_SECONDS:.0f} s under faults."
    head = f"| {' | '.join(COLUMNS)} |"
    return "\n".join([about, "", head, "|---" * len(COLUMNS) + "|", *(one.row() for one in outcomes)])


async def campaign(queues: list[str], seed: int, rounds: int, report: bool) -> int:
    prepare_cache()
    outcomes = list[Outcome]()
    for number in range(rounds):
        print(f"seed {seed + number}: {[(round(one.at), one.kind) for one in planned(seed + number, FAULT_SECONDS, WORKERS)]}")
        for peer in PEERS:
            if peer.name in queues:
                try:
                    outcomes.append(await one_round(peer, seed + number))
                except Unusable as why:
                    print(f"{peer.name} is left out: {why}")
                    continue
                print(outcomes[-1].row(), flush=True)
                if report:
                    pages.written("chaos-peers", table(outcomes))
    print(table(outcomes))
    return int(any(one.lost for one in outcomes if one.queue.startswith("Holdfast")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--queue", action="append", choices=QUEUES, help="this queue; may be repeated")
    parser.add_argument("--report", action="store_true", help="write the table into docs/reliability.md")
    wanted = parser.parse_args()
    return asyncio.run(campaign(wanted.queue or list(QUEUES), wanted.seed, wanted.rounds, wanted.report))


if __name__ == "__main__":
    sys.exit(main())
