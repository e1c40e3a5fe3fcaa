"""Advisories: brought in from OSV, EPSS and KEV into one file, and matched with components without any network."""

from holdfast.extraction.advisories.errors import AdvisoriesError, DatabaseUnavailable, SourceUnusable, UpdateRunning
from holdfast.extraction.advisories.matcher import Matcher, Matches, Unjudged
from holdfast.extraction.advisories.status import Status, status
from holdfast.extraction.advisories.update import Updated, update

__all__ = [
    "AdvisoriesError",
    "DatabaseUnavailable",
    "Matcher",
    "Matches",
    "SourceUnusable",
    "Status",
    "Unjudged",
    "UpdateRunning",
    "Updated",
    "status",
    "update",
]
