"""An extraction that is started in a transaction wakes a machine once that has committed."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.support.extractions import Staged
from tests.support.machines import FakeProvider
from tests.support.waiting import until


@pytest.mark.case("P5")
async def test_a_started_extraction_asks_the_orchestrator_for_a_machine(hf: Holdfast) -> None:
    """There is nothing to connect by hand: it is enough that the app has a provider."""
    staged = Staged(hf)
    await hf.migrate()
    provider = FakeProvider()
    hf.machines.use(provider)
    await staged.connect()
    assert await staged.extraction.ask_for_machine() is None
    await until(lambda: "create" in {verb for verb, _ in provider.calls})
