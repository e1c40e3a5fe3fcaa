"""Job tables that a team has already, under the reaper without being moved; and jobs that wait in Redis, imported."""

from holdfast.adopt.table import AdoptedTable, Rescued

__all__ = ["AdoptedTable", "Rescued"]
