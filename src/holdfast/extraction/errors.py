"""What a caller of the extraction application can meet."""

from __future__ import annotations

from holdfast.errors import Conflict, HoldfastError, NotFound


class ExtractionInProgress(Conflict):
    """The project has an extraction that waits or runs; `job_id` names it."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message, "extraction_in_progress")
        self.job_id = job_id


class NoRepository(NotFound):
    """The project is not connected to a repository, or it is another organization's."""

    code = "repository_not_connected"


class NothingToRetry(NotFound):
    """The newest extraction has not failed and was not cancelled."""

    code = "nothing_to_retry"


class TokenUnreadable(HoldfastError):
    """A stored token cannot be opened on this machine."""

    code = "token_unreadable"
