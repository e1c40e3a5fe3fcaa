"""Run one seed, and tell what came of it."""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.clock import DatabaseClock
from tests.simulation import tasks
from tests.simulation.invariants import summary
from tests.simulation.loop import SimulatedLoop
from tests.simulation.patches import SimulatedClock, replaced
from tests.simulation.scenario import Simulation
from tests.simulation.stores import Base, SqliteBase

STEPS_MAX = 200_000
MakeBase = Callable[[DatabaseClock], Base]


class Told(NamedTuple):
    """What came of a seed."""

    seed: int
    wrong: str | None
    steps: int
    digest: int
    moves: int
    seconds: float
    states: dict[str, int]
    faults: dict[str, int]
    trace: list[str]

    def story(self, last: int = 60) -> str:
        lines = "\n".join(self.trace[-last:])
        return f"seed {self.seed}: {self.wrong}\nThe last steps:\n{lines}\nAgain: make simulate SEED={self.seed}"


def simulate(seed: int, make_base: MakeBase = SqliteBase) -> Told:
    """The same seed gives the same story."""
    gc.disable()  # a collection would finalize what killed processes left, in the middle of something else
    gc.freeze()
    try:
        with _in_silence():
            told = _simulate(seed, make_base)
            gc.collect()
            return told
    finally:
        gc.unfreeze()
        gc.enable()


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """Workers warn of what goes wrong here on purpose, and coroutines of killed processes complain when they are finalized:
    their `finally` would wait for something."""
    log, level, hook = logging.getLogger("holdfast"), logging.getLogger("holdfast").level, sys.unraisablehook
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        log.setLevel(logging.CRITICAL + 1)
        sys.unraisablehook = lambda _: None
        try:
            yield
        finally:
            sys.unraisablehook = hook
            log.setLevel(level)


def _simulate(seed: int, make_base: MakeBase) -> Told:
    loop = SimulatedLoop(random.Random(f"loop {seed}"))
    base = make_base(SimulatedClock(loop))
    simulation = Simulation(seed, loop, base)
    wrong = None
    try:
        with replaced(loop, seed):
            loop.run(simulation.run(), steps_max=STEPS_MAX)
    except Exception as error:
        wrong = f"{type(error).__name__}: {error}"
        frames = traceback.extract_tb(error.__traceback__)
        simulation.books.note(f"{wrong} ({frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno})" if frames else wrong)
    finally:
        base.close()
        vars(tasks.place).clear()
    books = simulation.books
    return Told(seed, wrong, loop.steps, loop.digest, books.moves, loop.now, summary(books), books.faults, list(books.trace))
