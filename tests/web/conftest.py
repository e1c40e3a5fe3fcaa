"""The scene of the API's tests, on each kind of store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from holdfast import Holdfast
from tests.web.scene import Scene

if TYPE_CHECKING:
    from tests.web.extraction_scene import Shown


@pytest.fixture
async def scene(hf: Holdfast) -> Scene:
    return Scene(hf)


@pytest.fixture
def fuzz_url(request: pytest.FixtureRequest) -> str:
    """On SQLite in the suite; `make fuzz-api` asks for both databases, one after the other."""
    kind = os.environ.get("HOLDFAST_FUZZ_STORE", "sqlite")
    url: str = request.getfixturevalue(f"{kind}_url")
    return url


@pytest.fixture
async def both(hf: Holdfast) -> Shown:
    """The pages of extractions, on each store."""
    from tests.web.extraction_scene import Shown

    shown = Shown(hf)
    await hf.migrate()
    return shown


@pytest.fixture
async def shown(sqlite_url: str) -> AsyncIterator[Shown]:
    """The same on SQLite alone, where the store does not matter."""
    from tests.web.extraction_scene import Shown

    hf = Holdfast(sqlite_url)
    made = Shown(hf)
    await hf.migrate()
    yield made
    await hf.aclose()
