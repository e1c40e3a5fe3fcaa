"""The scene of the API's tests, on each kind of store."""

from __future__ import annotations

import os

import pytest

from holdfast import Holdfast
from tests.web.scene import Scene


@pytest.fixture
async def scene(hf: Holdfast) -> Scene:
    return Scene(hf)


@pytest.fixture
def fuzz_url(request: pytest.FixtureRequest) -> str:
    """On SQLite in the suite; `make fuzz-api` asks for both databases, one after the other."""
    kind = os.environ.get("HOLDFAST_FUZZ_STORE", "sqlite")
    url: str = request.getfixturevalue(f"{kind}_url")
    return url
