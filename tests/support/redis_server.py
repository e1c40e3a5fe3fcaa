"""A real Redis for a test session: on a free port, in a folder of its own, for this machine only."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.listening import started_on_a_free_port

MISSING = "redis-server is not installed: `make servers` installs it (Debian's package redis-server)"


class RedisServer:
    def __init__(self) -> None:
        program = shutil.which("redis-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            pytest.skip(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        options = ["--bind", "127.0.0.1", "--dir", str(self._folder), "--save", "", "--appendonly", "no"]
        self._process, self.port = started_on_a_free_port(lambda port: [program, "--port", str(port), *options])

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)
