"""Servers that must be told their port: a free one is chosen, and another one if somebody else was quicker to take it."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable

from tests.support.waiting import until_sync

TRIES = 5


def started_on_a_free_port(command_for: Callable[[int], list[str]]) -> tuple[subprocess.Popen[bytes], int]:
    """The process, once it listens there."""
    for _ in range(TRIES):
        port = _free_port()
        process = subprocess.Popen(command_for(port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_sync(lambda: process.poll() is not None or _answers(port), 60)  # noqa: B023
        if process.poll() is None:
            return process, port
    raise AssertionError(f"{process.args!r} ended {TRIES} times with {process.returncode}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
