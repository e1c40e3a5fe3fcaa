"""How many examples a property is tried with: few in `make test`, a hundred times as many in `make fuzz`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("HOLDFAST_FUZZ_TIMES", "1"))


def examples(count: int) -> int:
    return count * TIMES
