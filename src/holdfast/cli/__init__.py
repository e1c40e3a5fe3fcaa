"""The `holdfast` command. Commands are imported when they are called, so that a worker starts light."""

from holdfast.cli.root import main

__all__ = ["main"]
