"""A real PgBouncer in transaction mode in front of a test's PostgreSQL."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.waiting import until_sync

MISSING = "PgBouncer is not installed: `make servers` installs it (Debian's package pgbouncer)"


class PgBouncer:
    """Few server connections, so that clients really share them."""

    def __init__(self, server_url: str, *, server_connections: int = 4) -> None:
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            pytest.skip(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgb-"))
        host = parse_qs(urlsplit(server_url).query)["host"][0]
        self.port = _free_port()
        (self._folder / "users.txt").write_text('"postgres" ""\n', encoding="utf-8")
        config = self._folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host={host} user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            f"auth_file = {self._folder / 'users.txt'}\npool_mode = transaction\ndefault_pool_size = {server_connections}\n"
            f"max_client_conn = 500\nlogfile = {self._folder / 'log'}\n",
            encoding="utf-8",
        )
        command = [program, str(config)]
        if os.geteuid() == 0:  # it refuses to run as root; and only the server's own user reaches its socket
            user = Path(host).owner()
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, user)
            command[1:1] = ["-u", user]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until_sync(self._answers)

    def url_of(self, direct_url: str) -> str:
        """The same database through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}{urlsplit(direct_url).path}"

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "log").read_text(encoding="utf-8")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
