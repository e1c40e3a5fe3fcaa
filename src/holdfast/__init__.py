"""Durable background jobs on SQLite or PostgreSQL: the public names, nothing else."""

from holdfast.app import Holdfast
from holdfast.context import current, step, step_sync
from holdfast.errors import Abort, RetryLater, Snooze
from holdfast.job import Failure, Job, State
from holdfast.version import VERSION as __version__

__all__ = [
    "Abort",
    "Failure",
    "Holdfast",
    "Job",
    "RetryLater",
    "Snooze",
    "State",
    "__version__",
    "current",
    "step",
    "step_sync",
]
