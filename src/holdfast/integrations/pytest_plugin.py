"""Placeholder of the pytest plugin."""
