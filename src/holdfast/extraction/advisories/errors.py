"""What can go wrong with advisories; a message says what happened and what to do next."""

from __future__ import annotations


class AdvisoriesError(Exception):
    code = "advisories_error"


class DatabaseUnavailable(AdvisoriesError):
    """There is no database, or it cannot be read: nothing was checked."""

    code = "advisories_unavailable"


class SourceUnusable(AdvisoriesError):
    """What was to be brought in cannot be had or understood; the database stays as it was."""

    code = "advisories_source_unusable"


class UpdateRunning(AdvisoriesError):
    code = "advisories_update_running"


class NotComparable(Exception):
    """Two versions have no order that anybody can vouch for."""
