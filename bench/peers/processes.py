"""Real processes in the environment of a queue, each a group of its own: Ctrl+C is ours alone, a kill takes children along."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from typing import Any

from bench.peers.environments import CACHE
from bench.peers.tally import VARIABLE, Tally
from bench.processes import ROOT

_running: set[Child] = set()


class Child:
    """One `python -m bench.peers.child …`; what it says besides its answer is in bench/.cache/QUEUE.log."""

    def __init__(self, process: Process, log: str) -> None:
        self._process = process
        self._log = log
        _running.add(self)

    @classmethod
    async def start(cls, python: str, peer: str, *arguments: str, **environment: str) -> Child:
        path = CACHE / f"{peer}.log"
        own = {**os.environ, "PYTHONWARNINGS": "ignore", **environment}
        with path.open("a") as log:
            process = await asyncio.create_subprocess_exec(
                python,
                *("-m", "bench.peers.child", peer, *arguments),
                cwd=ROOT,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=own,
                start_new_session=True,
            )
        return cls(process, str(path.relative_to(ROOT)))

    @property
    def ended(self) -> bool:
        return self._process.returncode is not None

    async def had_begun(self) -> bool:
        """Of one that has ended and was never asked for more: whether it was ready before."""
        assert self._process.stdout is not None
        return b"ready\n" in await self._process.stdout.read()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    async def ready(self) -> None:
        assert self._process.stdout is not None
        if await asyncio.wait_for(self._process.stdout.readline(), 60) != b"ready\n":
            raise RuntimeError(f"a process ended before it was ready, see {self._log}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def answer(self, seconds: float) -> Any:
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), seconds)
        if not line:
            raise RuntimeError(f"a process ended without an answer, see {self._log}")
        await self.kill()
        return json.loads(line)

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self._process.wait()
        _running.discard(self)


class Workers:
    """Worker processes of one queue on one place, and the tally of what their jobs did."""

    def __init__(self, python: str, peer: str, url: str, *, gentle: bool = False) -> None:
        self._command = (python, peer, url, "work", "gentle" if gentle else "full")
        self._children: dict[int, Child] = {}
        self.tally = Tally()

    async def start(self, count: int) -> None:
        """Started first, let go together."""
        for number in range(count):
            self._children[number] = await self._child(number)
        for child in self._children.values():
            await child.ready()
        for child in self._children.values():
            child.go()

    def __getitem__(self, number: int) -> Child:
        return self._children[number]

    async def begin(self, number: int) -> None:
        """Without waiting for it, as a supervisor does; in place of one that is gone."""
        self._children[number] = await self._child(number)
        self._children[number].go()

    async def _child(self, number: int) -> Child:
        return await Child.start(*self._command, **{VARIABLE: str(self.tally.path), "BENCH_WORKER": f"worker-{number}"})

    async def kill(self, number: int) -> None:
        await self._children[number].kill()

    async def replace_ended(self) -> int:
        """Start again what has ended, as any supervisor would; how many that were."""
        ended = [number for number, child in self._children.items() if child.ended]
        for number in ended:
            await self._children[number].kill()
            await self.begin(number)
        return len(ended)

    async def close(self) -> None:
        for child in self._children.values():
            await child.kill()
        self.tally.remove()


async def kill_all() -> None:
    for child in list(_running):
        await child.kill()
