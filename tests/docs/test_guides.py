"""What the guides show works as it stands there."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
WITH_PYTHON = [page for page in sorted(GUIDES.glob("*.md")) if "```python" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
async def test_the_python_of_a_guide_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, `await` and assertions included, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_DATABASE_URL", raising=False)
    known: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        answer = eval(compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), known)
        if inspect.isawaitable(answer):
            await answer
    await known["hf"].aclose()
