"""Local machines whose processes only sleep, and are gone at the end."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast.machines.local import Entry, LocalProvider


@asynccontextmanager
async def sleeping_machines(folder: Path) -> AsyncIterator[LocalProvider]:
    provider = LocalProvider(["sleep", "600"], folder)
    try:
        yield provider
    finally:
        for machine in await provider.list():
            await provider.destroy(machine.id)


def pid_of(folder: Path, name: str) -> int:
    pid = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Entry).pid
    assert pid is not None
    return pid


def end(folder: Path, name: str) -> None:
    """As if its worker had ended. A killed process is there for a moment longer, so its end is waited for, not collected."""
    pid = pid_of(folder, name)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
