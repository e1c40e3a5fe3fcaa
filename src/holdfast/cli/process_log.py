"""Where the log of a long-running process goes."""

from __future__ import annotations

import logging


def log_to_stderr() -> None:
    """Unless the app has set up logging itself."""
    ours = logging.getLogger("holdfast")
    if ours.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
