"""Which file a relative path means."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import NotMigrated


async def test_a_store_stays_with_its_file_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads, writes and transactions mean the file that its path meant when it was made, whatever lies elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    hf = Holdfast("sqlite:///jobs.db")

    @hf.task
    async def work() -> None: ...

    monkeypatch.chdir(tmp_path / "elsewhere")
    other = Holdfast("sqlite:///jobs.db")
    with pytest.raises(NotMigrated):
        await other.jobs()
    await hf.migrate()
    await other.migrate()
    async with hf.transaction() as tx:
        await work.options(tx=tx).enqueue()
    await work.enqueue()
    assert len(await hf.jobs()) == 2 and await other.jobs() == []
    await hf.aclose()
    await other.aclose()
