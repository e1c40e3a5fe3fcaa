"""The app as the `holdfast` command finds it: `holdfast --app bench.command:hf worker`."""

from __future__ import annotations

from bench.app import make_app

hf = make_app()
