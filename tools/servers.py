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
    failed = False
    for name in missing:
        print(f"installing {name} ...", flush=True)
        if not install_package(PROGRAMS[name]):
            print(
                f"{name} could not be installed. Install Debian's package {PROGRAMS[name]}; until then its tests are skipped."
            )
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
