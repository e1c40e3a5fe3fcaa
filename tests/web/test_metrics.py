"""/metrics: what Prometheus reads, who may read it, and what reading costs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import Abort, Holdfast, RetryLater, current
from holdfast.clock import ManualClock
from holdfast.web import metrics
from holdfast.web.access import Role
from holdfast.web.server import make_app
from tests.conformance.scene import insert, start
from tests.web.nobody import Always, Nobody

FAR = "203.0.113.9"


def client_of(hf: Holdfast, who: Nobody, address: str = FAR) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_app(hf, who), client=(address, 1234))
    return httpx.AsyncClient(transport=transport, base_url="http://jobs.example")


async def scraped(client: httpx.AsyncClient) -> dict[str, float]:
    """`name{label=value,…}` -> value."""
    answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return {
        sample.name + "{" + ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items())) + "}": sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@pytest.fixture
async def client(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(hf, Always(Role.SERVICE)) as opened:
        yield opened


async def test_what_workers_did_is_read_from_the_database(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """They open no port: their counters are those of the database, whichever process is asked."""

    @hf.task(queue="mail", max_attempts=2, backoff=(0.0,))
    async def work(how: str) -> None:
        current().log.info("hello")
        if how == "retry" and current().attempt == 1:
            raise RetryLater(0)
        if how == "fail":
            raise Abort("no")

    for how in ("ok", "ok", "retry", "fail"):
        await work.enqueue(how)
    await hf.run_worker(exit_when_idle=0.0)
    found = await scraped(client)
    assert found["holdfast_jobs_completed_total{queue=mail}"] == 3
    assert found["holdfast_jobs_failed_total{queue=mail}"] == 1
    assert found["holdfast_retries_total{queue=mail}"] == 1
    assert found["holdfast_claims_total{queue=mail}"] == 5
    assert found["holdfast_run_seconds_count{queue=mail}"] == found["holdfast_wait_seconds_count{queue=mail}"] == 5
    assert found["holdfast_first_log_line_seconds_count{queue=mail}"] == 4
    assert found["holdfast_run_seconds_bucket{le=+Inf,queue=mail}"] == 5
    assert found["holdfast_run_seconds_sum{queue=mail}"] > 0


async def test_a_queue_whose_jobs_all_fail_has_completed_none(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """Which is said, so that a rule can compare the two."""

    @hf.task(queue="mail")
    async def work() -> None:
        raise Abort("no")

    await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    found = await scraped(client)
    assert found["holdfast_jobs_failed_total{queue=mail}"] == 1
    assert found["holdfast_jobs_completed_total{queue=mail}"] == 0


async def test_what_is_in_the_queues_is_told(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """By queue and state, with what runs, waits and is paused."""
    await start(hf.store)
    await insert(hf.store)
    await insert(hf.store, delay=600.0)
    await hf.queues.pause("mail")
    found = await scraped(client)
    counted = {state: found[f"holdfast_jobs{{queue=mail,state={state}}}"] for state in ("waiting", "scheduled", "running")}
    assert counted == {"waiting": 1, "scheduled": 1, "running": 1}
    assert found["holdfast_queue_paused{queue=mail}"] == found["holdfast_database_up{}"] == 1
    assert found["holdfast_workers{state=working}"] == 0


async def test_what_the_reaper_did_is_told_by_queue_and_stage(hf_at: Holdfast, clock: ManualClock) -> None:
    """Whichever process it ran in."""
    run = await start(hf_at.store, lease_seconds=10.0)
    await hf_at.store.progress_set_if_leased(run.id, run.run_id, None, "cloning")
    await start(hf_at.store, lease_seconds=10.0, max_attempts=1)
    clock.advance(11)
    report = await hf_at.reap()
    assert (len(report.requeued), len(report.failed)) == (1, 1)
    async with client_of(hf_at, Always(Role.SERVICE)) as client:
        found = await scraped(client)
    assert found["holdfast_reaper_requeues_total{queue=mail,stage=cloning}"] == 1
    assert found["holdfast_reaper_failures_total{queue=mail,stage=}"] == 1
    assert found["holdfast_reaper_scan_duration_ms_count{queue=all,stage=leases}"] == 1


async def test_requests_are_counted_by_route_and_status(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """An address that nobody made does not become a series of its own."""
    await client.get("/healthz")
    await client.get("/made-up-1")
    await client.get("/made-up-2")
    found = await scraped(client)
    assert found["holdfast_http_requests_total{method=GET,route=/healthz,status=200}"] == 1
    assert found["holdfast_http_requests_total{method=any,route=(none),status=404}"] == 2
    assert not any("made-up" in name for name in found)


async def test_scraping_often_reads_the_database_seldom(
    hf: Holdfast, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the time of the cache the answer is the same; after it, new."""
    assert "holdfast_jobs{queue=mail,state=waiting}" not in await scraped(client)
    await insert(hf.store)
    assert "holdfast_jobs{queue=mail,state=waiting}" not in await scraped(client)
    monkeypatch.setattr(metrics, "CACHE_SECONDS", 0.0)
    assert (await scraped(client))["holdfast_jobs{queue=mail,state=waiting}"] == 1


async def test_without_a_database_the_servers_own_counters_are_told() -> None:
    """And that the database is away, which is what one wants to know then."""
    hf = Holdfast("postgresql://someone@127.0.0.1:1/jobs")
    async with client_of(hf, Always(Role.SERVICE)) as client:
        await client.get("/healthz")
        found = await scraped(client)
    await hf.aclose()
    assert found["holdfast_database_up{}"] == 0
    assert found["holdfast_http_requests_total{method=GET,route=/healthz,status=200}"] == 1


async def test_every_name_that_is_written_is_a_known_one(hf: Holdfast, client: httpx.AsyncClient) -> None:
    """The table of names is what the reference, the alerts and the board are checked against."""
    await scraped(client)
    text = (await client.get("/metrics")).text
    written = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert {name for name in written if not name.endswith("_created")} == metrics.NAMES


# -- who may read ----------------------------------------------------------------------------------------------------------


async def status(hf: Holdfast, who: Nobody, address: str = FAR, headers: dict[str, str] | None = None) -> int:
    async with client_of(hf, who, address) as client:
        return (await client.get("/metrics", headers=headers)).status_code


async def test_metrics_are_closed_by_default(sqlite_url: str) -> None:
    """Not for strangers, and not for the owner of one organization; for the service role."""
    hf = Holdfast(sqlite_url)
    assert await status(hf, Nobody()) == 401
    assert await status(hf, Always(Role.OWNER, "acme")) == 403
    assert await status(hf, Always(Role.SERVICE)) == 200
    await hf.aclose()


async def test_metrics_are_closed_to_this_host_too(sqlite_url: str) -> None:
    """A proxy on this host passes on what comes from anywhere, and need not say so."""
    hf = Holdfast(sqlite_url)
    assert await status(hf, Nobody(), "127.0.0.1") == await status(hf, Nobody(), "::1") == 401
    await hf.aclose()


async def test_metrics_can_be_opened_to_all(sqlite_url: str) -> None:
    """By a setting that somebody has to make."""
    hf = Holdfast(sqlite_url, metrics_public=True)
    assert await status(hf, Nobody()) == 200
    await hf.aclose()
