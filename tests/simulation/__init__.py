"""Seeded schedules of the real code on a virtual clock; docs/simulation.md tells what for and how."""
