"""docs/dashboard.md: what it lists is what is there, and its example runs."""

from __future__ import annotations

import re
from typing import Any

from holdfast import Holdfast
from holdfast.pages import Pages
from holdfast.web.dashboard.views import GROUPS
from tests.support.source import text_files
from tests.web.scene import Scene

GUIDE = text_files()["docs/dashboard.md"]


def test_every_entry_of_the_navigation_is_listed() -> None:
    """In the table of pages."""
    table = GUIDE.split("## What is there")[1].split("## Acting")[0]
    assert [entry.title for group in GROUPS for entry in group.nav if entry.title not in table] == []


async def test_the_example_of_own_pages_runs(sqlite_url: str) -> None:
    """As it stands there, with what it leaves to the reader put in: it asks first, then ships what was ticked."""
    example = next(block for block in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if "Pages(" in block)
    shipped: list[Any] = []

    async def ship_orders(ids: list[str], by: str) -> None:
        shipped.append((ids, by.split(":")[0]))

    class WithoutTemplates(Pages):
        def __init__(self, name: str, *, templates: str, nav: Any) -> None:
            super().__init__(name, nav=nav)

    hf = Holdfast(sqlite_url)
    own = example.replace("from holdfast.pages import Nav, Page, Pages", "from holdfast.pages import Nav, Page")
    assert own != example
    exec(own, {"hf": hf, "Pages": WithoutTemplates, "ship_orders": ship_orders, "__name__": "example"})
    scene = Scene(hf)
    form = {"id": ["1", "2", "3"]}
    question = await scene.call("acme member", "POST", "/orders/ship", data=form)
    assert "Ship 3 orders?" in question.text and shipped == []
    done = await scene.call("acme member", "POST", "/orders/ship", data={**form, "confirm": "3"})
    assert (done.status_code, shipped) == (303, [(["1", "2", "3"], "key")])
    assert (await scene.call("acme viewer", "POST", "/orders/ship", data=form)).status_code == 403
    await hf.aclose()
