"""A disk that can be full for a while: a file system of a few megabytes in memory. Only root may mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

PIECES_BYTES = (2**20, 2**12)


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """To the last page."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for size in PIECES_BYTES:
                with contextlib.suppress(OSError):
                    while file.write(b"\0" * size) == size:
                        pass

    def empty(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk | None]:
    """Mounted below this folder; None where that is not allowed."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "holdfast", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode:
        yield None
        return
    try:
        yield SmallDisk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
