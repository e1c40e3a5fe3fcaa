"""What the commands of manage.py have in common: they are those of `holdfast`, with the project's app."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from holdfast.cli import main


class HoldfastCommand(BaseCommand):  # type: ignore[misc]
    command = ""
    requires_system_checks: list[str] = []

    def run_from_argv(self, argv: list[str]) -> None:
        """All options are `holdfast`'s own."""
        sys.exit(main([*self._app(), self.command, *argv[2:]]))

    def handle(self, *args: str, **options: Any) -> None:
        """By `call_command`."""
        code = main([*self._app(), self.command, *args])
        if code:
            raise CommandError(f"holdfast {self.command} ended with {code}", returncode=code)

    def _app(self) -> list[str]:
        name = getattr(settings, "HOLDFAST", {}).get("APP")
        if name is None:
            raise CommandError('Say where the tasks are: HOLDFAST = {"APP": "project.jobs:hf"} in the settings.')
        return ["--app", str(name)]
