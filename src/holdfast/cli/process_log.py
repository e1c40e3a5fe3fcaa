"""Where the log of a long-running process goes."""

from __future__ import annotations

import logging

from holdfast.console import RedactingFormatter, guard_console


def log_to_stderr() -> None:
    """Unless the app has set up logging itself."""
    guard_console()
    ours = logging.getLogger("holdfast")
    if ours.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(message)s"))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
