"""Holdfast's tests: unit, conformance, cases, processes; what they share is in support/."""
