"""The child's side of an isolated task: `python -m holdfast.processes.isolated_child FD`."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import fcntl
import importlib
import logging
import os
import runpy
import signal
import socket
import struct
import sys
import threading
from typing import Any

import msgspec

from holdfast import tracing
from holdfast.console import guard_console
from holdfast.context import CurrentRun, Platform, current_run
from holdfast.errors import ConfigError
from holdfast.finish import departure_of, one_line
from holdfast.forking import keep_for_parent, reset_after_fork
from holdfast.handover import Handover
from holdfast.processes import watchdog
from holdfast.processes.isolated import Order, frame
from holdfast.run import load_arguments, log_error, result_json
from holdfast.runlog.capture import NOTHING, level_of, watch_logging
from holdfast.runlog.text import Limits, said, sendable, storable
from holdfast.settings import Settings
from holdfast.store.protocol import Claimed
from holdfast.task import Task
from holdfast.thread_starts import start


class ParentLink:
    """The run's way back to its worker. Lines may come from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection: socket.socket | None = connection
        self._frames = Handover(connection.sendall)
        reset_after_fork(self)
        self.cancelled = False
        self.cancelled_by: str | None = None
        self._completed_in_tx = False
        self.limits = Limits.of(Settings())
        self.capture_level = NOTHING

    @property
    def completed_in_tx(self) -> bool:
        return self._completed_in_tx

    @completed_in_tx.setter
    def completed_in_tx(self, value: bool) -> None:
        """Told at once: the worker must not take the end of the lease for a loss."""
        self._completed_in_tx = value
        self.send({"completed_in_tx": value})

    def send(self, message: dict[str, Any]) -> None:
        if self._connection is not None:
            self._frames.give(frame(message))

    def _reset_after_fork(self) -> None:
        """Frames of two processes on one stream would run into each other: the run alone speaks."""
        keep_for_parent(self._connection)
        self._connection = None

    def log(
        self,
        level: str,
        message: str,
        step: str | None = None,
        duration_ms: float | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.send({"log": sendable(said(level, message, step, duration_ms, metadata, self.limits), self.limits)})

    def note(self, level: str, message: str, metadata: dict[str, Any] | None = None) -> None:
        self.send({"note": sendable(said(level, message, None, None, metadata, self.limits), self.limits)})

    def progress(self, fraction: float | None, stage: str | None) -> None:
        self.send({"progress": [fraction, None if stage is None else storable(stage)]})

    def printed(self, stream: str, text: str) -> bool:
        return False  # the worker reads the real output

    def hold_log(self) -> None:
        self.send({"hold_log": True})

    async def log_has_room(self) -> None:
        """The worker reads no further while there is none."""

    def receive(self) -> dict[str, Any] | None:
        head = self._read(4)
        data = self._read(struct.unpack(">I", head)[0]) if head else None
        return msgspec.json.decode(data) if data else None

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size and self._connection is not None:
            part = self._connection.recv(min(size, 1 << 20))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def follow_parent(self) -> None:
        """In a thread: hears a cancel, and ends the whole group when the worker is gone."""
        while (message := self.receive()) is not None:
            if "cancel" in message:
                self.cancelled_by, self.cancelled = message["cancel"], True
        os.killpg(0, signal.SIGKILL)


class ChildAttempt:
    """What logging an error needs of an attempt."""

    def __init__(self, link: ParentLink, claimed: Claimed) -> None:
        self.note = link.note
        self.claimed = claimed


def main() -> None:
    guard_console()
    link = ParentLink(socket.socket(fileno=int(sys.argv[1])))
    first = link.receive()
    if first is None:
        return
    order = msgspec.convert(first, Order)
    if order.end_in is not None:
        watchdog.end_in(order.end_in)
    _end_group_with_parent(int(sys.argv[2]))
    start(threading.Thread(target=link.follow_parent, daemon=True))
    sys.path[:] = order.search_path
    try:
        task = _find_task(order)
    except BaseException as error:
        link.send({"unimportable": one_line(error)})
        os._exit(1)
    platform: Any = task.app
    link.limits, link.capture_level = Limits.of(platform.settings), level_of(task.spec.capture)
    if task.spec.capture:
        watch_logging()
    if link.capture_level != NOTHING and "print" in task.spec.capture:
        logging.lastResort = logging.NullHandler()  # its stderr is captured too: the same line would come twice
    attempt = ChildAttempt(link, order.claimed)
    try:
        value = _call(task, order, link, platform)
        result = result_json(value, platform.settings)
        _flush_output()
        link.send({"value": None if result is None else msgspec.Raw(result.encode())})
    except BaseException as error:
        departure = departure_of(error, order.claimed, task.spec, platform.settings, cancelled=link.cancelled)
        log_error(attempt, error, departure)
        _flush_output()
        link.send({"departure": departure, "blamed": _blamed(task, error, platform)})
    os._exit(0)


def _end_group_with_parent(life_line: int) -> None:
    """By the kernel, when the other end closes: a thread that waits for that could not act in a frozen process. Linux only."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(life_line, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life_line, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life_line, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)


def _blamed(task: Task[..., Any], error: BaseException, platform: Platform) -> str | None:
    """What is to be said against the service that the task needs; here, where the exception still exists."""
    needs = task.spec.needs
    return None if needs is None else platform.breakers.verdict_of(needs, error, task.spec.permanent)[1]


def _flush_output() -> None:
    """Before the answer, which ends this process. A task may have closed it, or put something odd in its place."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _find_task(order: Order) -> Task[..., Any]:
    if order.main_path is not None:
        found: Any = runpy.run_path(order.main_path, run_name="__holdfast_isolated__")
        names = order.qualname.split(".")
        found = found[names[0]]
    else:
        found, names = importlib.import_module(order.module), ["", *order.qualname.split(".")]
    for name in names[1:]:
        found = getattr(found, name)
    if not isinstance(found, Task):
        raise ConfigError(f"{order.module}.{order.qualname} is not a task when it is imported again")
    return found


def _call(task: Task[..., Any], order: Order, link: ParentLink, platform: Platform) -> Any:
    arguments = load_arguments(task, order.claimed, platform.settings)
    run = CurrentRun(order.claimed, link, platform)
    if order.memory is not None:
        import resource

        # Not the address space: programs such as Node reserve far more of that than they ever use.
        resource.setrlimit(resource.RLIMIT_DATA, (order.memory, order.memory))
    context = contextvars.copy_context()
    context.run(current_run.set, run)
    context.run(tracing.enter_carried, order.trace_context)
    try:
        if task.is_async:
            return context.run(asyncio.run, task.fn(**arguments))
        return context.run(task.fn, **arguments)
    finally:
        platform.spending.settle_here(run.run_id)
        tracing.flush()  # here and not at the end: the worker kills this process as soon as it has the answer


if __name__ == "__main__":
    main()
