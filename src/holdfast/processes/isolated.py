"""Isolated tasks: each run in a process group of its own that can be killed and limited in memory.

Parent and child talk in length-prefixed JSON over a socket pair, so that whatever the task prints cannot disturb it.
The child ends by itself when the parent is gone: its end of the socket closes. A second pair of sockets carries nothing: when
that closes, Linux ends the group even if the child is frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from holdfast import tracing
from holdfast.context import OUTPUT_BYTES
from holdfast.finish import ProcessDied
from holdfast.run import Attempt, HandedOver
from holdfast.runlog.text import Said
from holdfast.store.protocol import Claimed, Departure

TERM_SECONDS = 2.0
FRAME_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 65_536
OUTPUT_SECONDS = 5.0
_HEAD = struct.Struct(">I")


class Order(msgspec.Struct):
    """What the child needs to know to run one job."""

    module: str
    main_path: str | None
    qualname: str
    search_path: list[str]
    memory: int | None
    claimed: Claimed
    trace_context: str | None = None
    end_in: float | None = None
    """The watchdog's time: the deadline and a grace, by when the worker has ended the run if it lives."""


def frame(message: object) -> bytes:
    data = msgspec.json.encode(message)
    return _HEAD.pack(len(data)) + data


async def frames_of(reader: asyncio.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """Until the stream ends. Many are read at once: a task may log faster than it could be asked for each line."""
    data = b""
    while chunk := await _read(reader):
        data += chunk
        start = 0
        while len(data) - start >= _HEAD.size:
            (size,) = _HEAD.unpack_from(data, start)
            if size > FRAME_BYTES_MAX:
                return
            if len(data) - start - _HEAD.size < size:
                break
            start += _HEAD.size
            yield msgspec.json.decode(memoryview(data)[start : start + size])
            start += size
        data = data[start:]


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(READ_BYTES)
    except ConnectionError:
        return b""


async def run_isolated(attempt: Attempt) -> Any:
    """The task's JSON value, or HandedOver with the departure that the child decided on."""
    (ours, theirs), (life_line, held) = socket.socketpair(), socket.socketpair()
    temp_folder = tempfile.mkdtemp(prefix="holdfast-run-")
    output = asyncio.subprocess.PIPE if "print" in attempt.task.spec.capture else None
    try:
        with theirs, held:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast.processes.isolated_child", str(theirs.fileno()), str(held.fileno()),
                pass_fds=[theirs.fileno(), held.fileno()], start_new_session=True, stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "TMPDIR": temp_folder, **({"PYTHONUNBUFFERED": "1"} if output else {})},
                stdout=output, stderr=output,
            )  # fmt: skip
        said = Output(attempt, process)
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(frame(_order_of(attempt)))
            attempt.tell_child = lambda message: writer.write(frame(message))
            if attempt.cancelled:  # asked while the process was being started
                attempt.tell_child({"cancel": attempt.cancelled_by})
            answer = await _listen(attempt, reader)
            return await _value_of(answer, process)
        finally:
            attempt.tell_child = None
            try:
                await _end_group(process)
            finally:  # not before: the child takes a closed connection for the death of its worker, and ends at once
                writer.close()
                await said.end()
    finally:
        ours.close()
        life_line.close()
        shutil.rmtree(temp_folder, ignore_errors=True)


def _order_of(attempt: Attempt) -> Order:
    fn: Any = attempt.task.fn
    while hasattr(fn, "__wrapped__"):
        fn = fn.__wrapped__
    main_path = getattr(sys.modules["__main__"], "__file__", None) if fn.__module__ == "__main__" else None
    memory, span = attempt.task.spec.memory, tracing.carried(attempt.span)
    return Order(
        fn.__module__, main_path, fn.__qualname__, list(sys.path), memory, attempt.claimed, span, _seconds_left(attempt)
    )


def _seconds_left(attempt: Attempt) -> float | None:
    settings = attempt.host.settings
    if not settings.watchdog:
        return None
    return (attempt.claimed.timeout_seconds or settings.run_limit) + settings.deadline_grace


async def _listen(attempt: Attempt, reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """Passes on what the run says until it answers, or its process is gone."""
    async for message in frames_of(reader):
        if "log" in message:
            attempt.relay(Said(*message["log"]))
            await attempt.log_has_room()  # until then nothing is read, and the child waits
        elif "note" in message:
            attempt.relay(Said(*message["note"]), ours=True)
        elif "progress" in message:
            attempt.progress(*message["progress"])
        elif "hold_log" in message:
            attempt.hold_log()
        elif "completed_in_tx" in message:
            attempt.completed_in_tx = True
        else:
            return message
    return None


class Output:
    """The real output of a run's process, where it is captured: also of what the task starts, and the last words of a crash."""

    def __init__(self, attempt: Attempt, process: asyncio.subprocess.Process) -> None:
        self._attempt = attempt
        self._reads = 0
        pipes = (("stdout", process.stdout), ("stderr", process.stderr))
        self._readers = [asyncio.create_task(self._read(name, pipe)) for name, pipe in pipes if pipe is not None]

    async def _read(self, name: str, pipe: asyncio.StreamReader) -> None:
        while data := await pipe.read(OUTPUT_BYTES):
            self._reads += 1
            self._attempt.printed(name, data)
            await self._attempt.log_has_room()
            await asyncio.sleep(0)

    async def end(self) -> None:
        """The group is dead, so the end comes by itself, unless something that left the group keeps a pipe open."""
        waiting, before = set(self._readers), -1
        while waiting and before != self._reads:
            before = self._reads
            _, waiting = await asyncio.wait(waiting, timeout=OUTPUT_SECONDS)
        for reader in waiting:
            reader.cancel()
        self._attempt.end_prints()


async def _value_of(answer: dict[str, Any] | None, process: asyncio.subprocess.Process) -> Any:
    if answer is None:
        raise _died(await process.wait())
    if "departure" in answer:
        raise HandedOver(msgspec.convert(answer["departure"], Departure), answer.get("blamed"))
    if "unimportable" in answer:
        raise ProcessDied(
            f"its module cannot be imported in a process of its own: {answer['unimportable']}", "task_unimportable"
        )
    return answer["value"]


def _died(code: int) -> ProcessDied:
    if code == -signal.SIGKILL:
        return ProcessDied("its process was killed (SIGKILL), most likely for lack of memory", "out_of_memory")
    if code < 0:
        return ProcessDied(f"its process was ended by {signal.Signals(-code).name}", "process_crashed")
    return ProcessDied(f"its process ended with exit code {code} and without an answer", "process_exited")


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """The whole group, also what the task has started: politely first if it still runs, then for certain."""
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERM_SECONDS):
                await process.wait()
    _signal_group(process.pid, signal.SIGKILL)
    await process.wait()


def _signal_group(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, what)
