"""A real PgBouncer in transaction mode in front of a test's PostgreSQL."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.listening import started_on_a_free_port

MISSING = "PgBouncer is not installed: `make servers` installs it (Debian's package pgbouncer)"


class PgBouncer:
    """Few server connections, so that clients really share them."""

    def __init__(self, server_url: str, *, server_connections: int = 4) -> None:
        program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
        if program is None:
            pytest.skip(MISSING)
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgb-"))
        host = parse_qs(urlsplit(server_url).query)["host"][0]
        users, config = self._folder / "users.txt", self._folder / "pgbouncer.ini"
        users.write_text('"postgres" ""\n', encoding="utf-8")
        # It refuses to run as root; and only the server's own user reaches its socket.
        user = Path(host).owner() if os.geteuid() == 0 else None

        def command_for(port: int) -> list[str]:
            config.write_text(
                f"[databases]\n* = host={host} user=postgres\n"
                f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
                f"auth_file = {users}\npool_mode = transaction\ndefault_pool_size = {server_connections}\n"
                f"max_client_conn = 500\nlogfile = {self._folder / 'log'}\n",
                encoding="utf-8",
            )
            if user is None:
                return [program, str(config)]
            for path in (self._folder, *self._folder.iterdir()):
                shutil.chown(path, user)
            return [program, "-u", user, str(config)]

        self._process, self.port = started_on_a_free_port(command_for)

    def url_of(self, direct_url: str) -> str:
        """The same database through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}{urlsplit(direct_url).path}"

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)
