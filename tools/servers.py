"""Installs the servers that some tests need beside PostgreSQL, where they are missing: PgBouncer and Redis."""

from __future__ import annotations

import shutil
import sys

from tools.browser import install_package

PROGRAMS = {"pgbouncer": "pgbouncer", "redis-server": "redis-server"}
"""Program -> Debian's package."""
PLACES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"


def main() -> int:
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PLACES)]
    for name in missing:
        print(f"installing {name} ...", flush=True)
        if not install_package(PROGRAMS[name]):
            print(f"No {name} here, so its tests are skipped: install Debian's package {PROGRAMS[name]}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
