"""What the pages on webhooks and the outbox show is run."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.settings import Settings
from holdfast.webhooks.delivery import ATTEMPTS, BACKOFF

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["webhooks.md", "outbox.md"])
def test_the_snippets_run_one_after_the_other(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `python -m asyncio`, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}

    async def run() -> None:
        for snippet in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL):
            code = compile(snippet, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running
        await names["hf"].aclose()

    asyncio.run(run())
    assert isinstance(names["hf"], Holdfast)


def test_the_page_tells_the_tries_and_settings_as_they_are() -> None:
    """So that the two do not drift apart."""
    page = (DOCS / "webhooks.md").read_text(encoding="utf-8")
    units = ((3600, "h"), (60, "min"), (1, "s"))
    waits = [next(f"{wait / size:g} {unit}" for size, unit in units if wait >= size) for wait in BACKOFF]
    assert ", ".join(waits) in page and f"After {ATTEMPTS} tries" in page
    for name in ("webhooks", "webhook_networks", "encryption_keys"):
        assert f"| `{name}` | `HOLDFAST_{name.upper()}` |" in page and hasattr(Settings, name)
