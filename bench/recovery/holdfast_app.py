"""Holdfast, with its defaults."""

from __future__ import annotations

from bench.recovery.mark import hang
from holdfast import Holdfast

hf = Holdfast()
job = hf.task(name="job")(hang)
