"""How PostgreSQL finds the runs that are to be rescued."""

from __future__ import annotations

import psycopg
import pytest

from tests.conformance.test_plan import PLAN_MODES, part_of, plan_of


@pytest.mark.parametrize("mode", PLAN_MODES)
@pytest.mark.parametrize(("begin", "end"), [("SELECT j.*,", "SKIP LOCKED"), ("SELECT w.id FROM holdfast.workers w", "= w.id)")])
def test_a_rescue_looks_only_at_running_jobs(postgres_url: str, mode: str, begin: str, end: str) -> None:
    """For expired leases, and for the jobs of dead workers: in their index, never in the table."""
    with psycopg.connect(postgres_url) as connection:
        plan = plan_of(connection, part_of("job_reap_v2", begin, end), mode)
    assert "using jobs_running on jobs j" in plan and "Seq Scan on jobs" not in plan, plan
