"""All readers by name: what `make fuzz-coverage` runs for minutes, and what `make test` replays in seconds."""

from __future__ import annotations

from tests.fuzz.core import CORE
from tests.fuzz.reader import Reader
from tests.fuzz.supply import SUPPLY
from tests.fuzz.web import WEB

READERS: dict[str, Reader] = {reader.name: reader for reader in [*CORE, *WEB, *SUPPLY]}
