"""Tasks whose garbage logs, prints and enqueues when it is collected."""

from __future__ import annotations

import gc
import sys

from holdfast import Holdfast, current

hf = Holdfast()
LINES = 8_000


class Talks:
    """In a cycle with itself, so that only the garbage collector ends it: anywhere, also inside of Holdfast's own code."""

    collected = 0

    def __init__(self) -> None:
        self.itself = self
        self.run = current()

    def __del__(self) -> None:
        Talks.collected += 1
        self.run.log.info("finalized")
        sys.stdout.write("finalized\n")  # not print: that writes the line end by itself, and this may come in between


def talk() -> int:
    gc.set_threshold(20)
    for number in range(LINES):
        Talks()
        current().log.info(f"line {number}", metadata={"number": [number]})
        sys.stdout.write(f"printed {number}\n")
    gc.set_threshold(700)
    gc.collect()
    return Talks.collected


@hf.task(name="talk_here", timeout=60, capture=("logging", "print"))
async def talk_here() -> int:
    return talk()


@hf.task(name="talk_in_thread", isolate=False, capture=("logging", "print"))
def talk_in_thread() -> int:
    return talk()


@hf.task(name="talk_apart", timeout=60, isolate=True)
def talk_apart() -> int:
    return talk()
