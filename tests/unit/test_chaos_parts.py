"""Parts of the campaigns of chaos that need no campaign: the plan of faults, the watch over memory, the table."""

from __future__ import annotations

import resource
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tools import chaos_memory, pages
from tools.chaos_memory import GROWTH_MB_MAX, Memory, Seen, starve
from tools.chaos_report import COLUMNS, Round, table
from tools.peer_faults import KINDS, planned


def test_a_seed_plans_the_same_faults_each_time() -> None:
    """So that every queue meets the same ones; another seed plans others."""
    assert planned(7, 40, 4) == planned(7, 40, 4) != planned(8, 40, 4)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_fault_is_met_where_there_is_time(seed: int) -> None:
    """In the order of time, and only on workers that there are."""
    plan = planned(seed, 60, 4)
    assert {fault.kind for fault in plan} == set(KINDS)
    assert [fault.at for fault in plan] == sorted(fault.at for fault in plan)
    assert all(0 <= fault.worker < 4 and fault.at < 60 for fault in plan)


def test_memory_that_grows_is_a_broken_promise() -> None:
    """Beyond the bound, and not before."""
    memory = Memory(lambda: [])
    memory._seen = {1: Seen(40, 40 + GROWTH_MB_MAX), 2: Seen(40, 41 + GROWTH_MB_MAX)}
    assert memory.wrongs() == ["process 2 grew from 40 to 105 MB"]


async def test_a_starved_process_gets_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is starved it may not take more; afterwards there is no limit left."""
    code = "import sys; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        limits = list[tuple[int, int]]()

        async def sleep(seconds: float) -> None:
            limits.append(resource.prlimit(process.pid, resource.RLIMIT_AS))

        monkeypatch.setattr(chaos_memory, "asyncio", SimpleNamespace(sleep=sleep))
        victim: Any = process
        await starve(victim, 1, spare_mb=1)
        limits.append(resource.prlimit(process.pid, resource.RLIMIT_AS))
    (soft, hard), (soft_after, hard_after) = limits
    assert 0 < soft < 2**33 and soft_after == hard_after == hard


def test_the_table_of_a_campaign_has_a_cell_for_every_column() -> None:
    """And the page has its place for it, as for the others."""
    one = Round("sqlite", 7, 30, 10, 1, 12, {"fill_disk": 2}, 1.4, 61.2, {"completed": 10}, 0)
    *_, head, line, row = table([one]).splitlines()
    assert head.count("|") == line.count("|") == row.count("|") == len(COLUMNS) + 1
    assert "2 fill disk" in row and "61 MB" in row
    page = pages.PAGE.read_text(encoding="utf-8")
    for name in ("chaos", "chaos-peers", "soak-postgres", "soak-sqlite"):
        assert "figures" in pages.placed(page, name, "figures")
