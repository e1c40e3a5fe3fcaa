"""What the extraction image runs, as `tasks:hf`. Set HOLDFAST_DATABASE_URL; replace this file to change the options."""

from __future__ import annotations

from holdfast import Holdfast
from holdfast.extraction.app import Extraction

hf = Holdfast()
extraction = Extraction(hf)
