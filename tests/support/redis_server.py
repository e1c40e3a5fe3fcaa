"""A real Redis for a test session: on a free port, in a folder of its own, for this machine only."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.waiting import until_sync

MISSING = "redis-server is not installed: `make servers` installs it (Debian's package redis-server)"


class RedisServer:
    def __init__(self) -> None:
        program = shutil.which("redis-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            pytest.skip(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-redis-"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(self._folder),
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_sync(self._answers)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        assert self._process.poll() is None, "redis-server ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)
