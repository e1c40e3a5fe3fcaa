"""What the jobs note down: a number each, in one file that all append to, so that the queue under test need not be asked."""

from __future__ import annotations

import os
import struct
import tempfile
from pathlib import Path

VARIABLE = "BENCH_TALLY"
_NUMBER = struct.Struct("<d")
_MEMORY = Path("/dev/shm")


def opened_by_job() -> int:
    """O_APPEND: eight bytes from any thread or process land whole, and outlive a SIGKILL."""
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND)


def note(file: int, value: float) -> None:
    os.write(file, _NUMBER.pack(value))


class Tally:
    """The reader's side; the file lies in memory, where a database's fsync does not meet it."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="holdfast-tally-", dir=_MEMORY if _MEMORY.is_dir() else None)
        os.close(handle)
        self.path = Path(name)

    def __len__(self) -> int:
        return self.path.stat().st_size // _NUMBER.size

    def values(self, start: int = 0) -> list[float]:
        """From that one on."""
        with self.path.open("rb") as file:
            file.seek(start * _NUMBER.size)
            content = file.read()
        return [number for (number,) in _NUMBER.iter_unpack(content[: len(content) // _NUMBER.size * _NUMBER.size])]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
