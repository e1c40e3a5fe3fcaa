"""What the pages on adopted tables, the import, frameworks and testing show is run."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import alembic.command
import alembic.config
import httpx
import pytest

from holdfast import Holdfast

DOCS = Path(__file__).parents[2] / "docs"


def snippets(page: str, folder: Path) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8").replace("sqlite:///jobs.db", f"sqlite:///{folder}/jobs.db")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def file_of(page: str, name: str, folder: Path) -> str:
    """The snippet that begins with the file's name."""
    return next(one for one in snippets(page, folder) if one.startswith(f"# {name}\n"))


@pytest.mark.parametrize("page", ["adopt.md", "import.md"])
def test_the_snippets_of_a_guide_run_one_after_the_other(page: str, tmp_path: Path) -> None:
    """As in `python -m asyncio`, on a file of their own."""
    names: dict[str, Any] = {}

    async def run() -> None:
        for snippet in snippets(page, tmp_path):
            running = eval(compile(snippet, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), names)
            if running is not None:
                await running
        await names["hf"].aclose()

    asyncio.run(run())
    assert isinstance(names["hf"], Holdfast)


def test_the_sqlalchemy_example_makes_one_job(tmp_path: Path) -> None:
    """With the id of its row."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(snippets("integrations.md", tmp_path)[0], "integrations.md", "exec", dont_inherit=True), names)
    assert [job.args for job in names["hf"].jobs_sync()] == [{"order_id": 1}]
    names["hf"].close()
    names["engine"].dispose()


def test_the_alembic_example_migrates(tmp_path: Path) -> None:
    """By Alembic's own command; a second upgrade finds nothing."""
    (tmp_path / "versions").mkdir()
    for name in ("env.py", "versions/0001_jobs.py"):
        (tmp_path / name).write_text(file_of("integrations.md", name, tmp_path), encoding="utf-8")
    config = alembic.config.Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "os")
    for _ in range(2):
        alembic.command.upgrade(config, "head")
    hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db")
    assert hf.migrate_sync() == []
    hf.close()


async def test_the_fastapi_example_answers_and_works(tmp_path: Path) -> None:
    """The worker inside it runs what a request has enqueued."""
    names: dict[str, Any] = {"__name__": "main"}
    exec(compile(file_of("integrations.md", "main.py", tmp_path), "main.py", "exec", dont_inherit=True), names)
    app, hf = names["app"], names["hf"]
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        job_id = (await client.post("/greet/Ana")).json()
        assert await hf.wait_for_result(job_id, timeout=40) == "Hello Ana"
    await hf.aclose()


def test_the_testing_example_passes(tmp_path: Path) -> None:
    """In a pytest of its own, beside the app that it shows."""
    for name in ("tasks.py", "test_signing_up.py"):
        (tmp_path / name).write_text(file_of("testing.md", name, tmp_path), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n", encoding="utf-8")
    without = [part for name in ("xdist", "schemathesis", "hypothesispytest", "playwright") for part in ("-p", f"no:{name}")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *without],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
        text=True,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
