"""Real processes that take part in a measurement: started first, let go together."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Child:
    """One `python -m bench.child …`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *arguments: str) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.child", *arguments, cwd=ROOT, stdin=PIPE, stdout=PIPE
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        assert self._process.stdout is not None
        if await self._process.stdout.readline() != b"ready\n":
            raise RuntimeError("A process of the benchmark ended before it was ready; what it said is above.")

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        await self._process.wait()
        if not line:
            raise RuntimeError("A process of the benchmark ended without an answer; what it said is above.")
        found: dict[str, Any] = json.loads(line)
        return found


async def run_together(count: int, *arguments: str) -> tuple[float, list[dict[str, Any]]]:
    """Start so many, wait until all are ready, let them go. Seconds until the last had `ended`, and the answers."""
    children = await asyncio.gather(*(Child.start(*arguments) for _ in range(count)))
    for child in children:
        await child.ready()
    started = time.monotonic()
    for child in children:
        child.say("go")
    answers = await asyncio.gather(*(child.answer() for child in children))
    return max(answer["ended"] for answer in answers) - started, answers
