"""What ties log lines together: the id of the request that is being answered."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("holdfast_request_id", default=None)
"""Set by the server for the time of a request; the log of the process prints it with every line."""
