"""What every job does: notes when and where it started, and goes on for ever."""

from __future__ import annotations

import asyncio
import os
import time

VARIABLE = "BENCH_MARKS"


async def hang() -> None:
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND)
    os.write(file, f"{time.monotonic()} {os.getpid()}\n".encode())
    os.close(file)
    await asyncio.Event().wait()
