"""What the guides to budgets and breakers show is run."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["budgets.md", "breakers.md"])
def test_the_snippets_of_a_guide_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """As in `python -m asyncio`, on a file of their own."""
    guide = (DOCS / page).read_text(encoding="utf-8").replace("sqlite:///jobs.db", f"sqlite:///{tmp_path}/jobs.db")
    names: dict[str, Any] = {}

    async def run() -> None:
        for snippet in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
            code = compile(snippet, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running
        await names["hf"].aclose()

    asyncio.run(run())
    assert isinstance(names["hf"], Holdfast)
