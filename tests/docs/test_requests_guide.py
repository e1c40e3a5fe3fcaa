"""What the guide to requests shows is run."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

from holdfast import Holdfast
from holdfast.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


def test_the_snippets_of_the_guide_run_one_after_the_other(tmp_path: Path) -> None:
    """As in `python -m asyncio`, on a file of their own."""
    guide = (DOCS / "requests.md").read_text(encoding="utf-8").replace("sqlite:///jobs.db", f"sqlite:///{tmp_path}/jobs.db")
    names: dict[str, Any] = {}

    async def run() -> None:
        for snippet in re.findall(r"```python\n(.*?)```", guide, re.DOTALL):
            code = compile(snippet, "requests.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running
        await names["hf"].aclose()

    asyncio.run(run())
    assert isinstance(names["hf"], Holdfast)


def test_the_reference_names_every_setting_with_its_default() -> None:
    """So that the two do not drift apart."""
    page = (DOCS / "reference" / "requests.md").read_text(encoding="utf-8")
    for name in ("idempotency_kept", "idempotency_lease", "api_rate"):
        assert re.search(rf"\| `{name}` \| `HOLDFAST_\w+` \| {getattr(Settings, name):g} \|", page), name
    limits = Holdfast("sqlite:///:memory:").rate.limits
    for name, most in ((name, limits[name].most) for name in ("ai_intake", "linear_export")):
        for kind, shown in (("user", "USER"), ("tenant", "ORG")):
            assert f"| `RL_{name.upper()}_{shown}_PER_HOUR` | {most[kind]} |" in page
