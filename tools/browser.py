"""Finds the browser that the browser tests and screenshots use; `make browser` installs it where it is missing.

It is the system's own Chromium: `HOLDFAST_TEST_BROWSER` names another one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "No browser here: `make browser` installs Chromium (Debian, as root), or HOLDFAST_TEST_BROWSER names one."
INSTALL = ("apt-get", "install", "--yes", "--quiet", "--no-install-recommends")
INSTALL_SECONDS_MAX = 300


def find_browser() -> str | None:
    given = os.environ.get("HOLDFAST_TEST_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


def install_package(name: str) -> bool:
    """With the lists of packages that are there, and where those are too old or missing with new ones."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    return _quietly(*INSTALL, name) or (_quietly("apt-get", "update", "--quiet") and _quietly(*INSTALL, name))


def _quietly(*command: str) -> bool:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=env, capture_output=True, stdin=subprocess.DEVNULL, timeout=INSTALL_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main() -> int:
    if find_browser():
        return 0
    print("installing chromium ...", flush=True)
    if install_package("chromium") and find_browser():
        return 0
    print(MISSING)
    return 1


if __name__ == "__main__":
    sys.exit(main())
