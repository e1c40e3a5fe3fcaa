"""`/metrics` for Prometheus: read from the database for all processes at once, and what this server counts itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.app import Holdfast
from holdfast.errors import StorageError
from holdfast.limits.breaker import BreakerState
from holdfast.stats import Stats, buckets_of
from holdfast.store.protocol import Queue, Tally, WorkerRow
from holdfast.tally import HISTOGRAMS, OUTCOMES, SUM
from holdfast.web.access import Act, require
from holdfast.web.problems import answers
from holdfast.web.routing import known_caller, web_of
from holdfast.why import ALIVE_SECONDS

CACHE_SECONDS = 10.0
"""However often it is scraped, the database is read no more often than this."""
READ_SECONDS = 5.0
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN_ROUTE = "(none)"

GAUGES = {
    "holdfast_database_up": ("Whether the database could be read for this answer.", ()),
    "holdfast_jobs": ("Jobs in a queue: waiting, scheduled, ordered or running; counted to 10,000.", ("queue", "state")),
    "holdfast_jobs_kept": ("Ended jobs that retention has not removed yet; counted to 10,000.", ("state",)),
    "holdfast_jobs_stuck": ("Running without a valid lease, or past the deadline.", ("queue",)),
    "holdfast_jobs_slow": ("Running for longer than expected.", ("queue",)),
    "holdfast_jobs_orphaned": ("Waiting for a minute or more and known to no live worker.", ("queue",)),
    "holdfast_oldest_wait_seconds": ("How long the oldest waiting job has waited.", ("queue",)),
    "holdfast_queue_paused": ("1 while the queue is paused.", ("queue",)),
    "holdfast_breaker_open": ("1 while jobs that need this service wait for it.", ("service",)),
    "holdfast_breaker_failures": ("Failures of this service in the present window.", ("service",)),
    "holdfast_budget_spent_cents": ("What all tenants have spent in their present month.", ("kind",)),
    "holdfast_budget_used_up": ("Tenants whose budget is used up.", ("kind",)),
    "holdfast_workers": ("Live workers: working or draining.", ("state",)),
    "holdfast_worker_slots": ("Jobs that the live workers can run at once.", ()),
    "holdfast_machines": ("Machines as the provider last listed them.", ("kind", "state")),
    "holdfast_worker_slots_used": ("Jobs that the live workers run, as they last said.", ()),
}
COUNTERS = {
    "holdfast_claims_total": ("claimed", "Jobs handed out to workers.", ("queue",)),
    "holdfast_jobs_completed_total": ("completed", "Runs that completed their job.", ("queue",)),
    "holdfast_jobs_failed_total": ("failed", "Runs that ended in failure for good.", ("queue",)),
    "holdfast_jobs_cancelled_total": ("cancelled", "Runs that were cancelled.", ("queue",)),
    "holdfast_retries_total": ("retried", "Runs that failed and are tried again.", ("queue",)),
    "holdfast_snoozes_total": ("snoozed", "Runs that asked to be run later.", ("queue",)),
    "holdfast_releases_total": ("released", "Runs that a stopping worker gave back.", ("queue",)),
    "holdfast_reaper_requeues_total": ("reaper_requeued", "Jobs that the reaper queued again.", ("queue", "stage")),
    "holdfast_reaper_failures_total": ("reaper_failed", "Jobs that the reaper gave up.", ("queue", "stage")),
    "holdfast_reaper_cancels_total": ("reaper_cancelled", "Jobs that the reaper cancelled.", ("queue", "stage")),
}
MACHINE_COUNTERS = {
    "holdfast_machine_starts_total": ("machine_starts", "Machines that were started, by kind.", ("kind",)),
    "holdfast_machine_failures_total": ("machine_failures", "Machines that could not be started, by reason.", ("reason",)),
    "holdfast_machine_seconds_total": ("machine_seconds", "How long machines were up; the rate makes it money.", ("kind",)),
}
DISTRIBUTIONS = {
    "holdfast_wait_seconds": ("wait", "From when a job could have run until its claim.", ("queue",)),
    "holdfast_run_seconds": ("run", "How long a run took.", ("queue",)),
    "holdfast_first_log_line_seconds": ("first_line", "From when a job could have run until its first log line.", ("queue",)),
    "holdfast_reaper_scan_duration_ms": ("reaper_scan", "How long a pass of the reaper took.", ("queue", "stage")),
}
OWN = {
    "holdfast_http_requests_total": ("Requests that this server answered.", ("method", "route", "status")),
    "holdfast_http_request_seconds": ("How long an answer took to begin.", ("route",)),
}
"""Of the process that is scraped; everything else is the same whichever server is asked."""
NAMES = frozenset([*GAUGES, *COUNTERS, *MACHINE_COUNTERS, *DISTRIBUTIONS, *OWN])

router = APIRouter(tags=["health"])


class Reading:
    """What the database says, once."""

    def __init__(
        self,
        stats: Stats,
        totals: list[Tally],
        workers: list[WorkerRow],
        queues: list[Queue],
        breakers: list[BreakerState],
        budgets: list[dict[str, Any]],
        machines: dict[tuple[str, ...], int],
    ) -> None:
        self.stats, self.totals, self.workers, self.queues = stats, totals, workers, queues
        self.breakers, self.budgets, self.machines = breakers, budgets, machines

    def families(self) -> Iterator[Metric]:
        yield from self._gauges()
        # A queue whose jobs all fail has completed none: without that 0, no rule could compare the two.
        nothing_yet = {(one.queue, ""): 0.0 for one in self.totals if one.name in OUTCOMES}
        for name, (tally, text, labels) in COUNTERS.items():
            counts = dict(nothing_yet) if labels == ("queue",) else {}
            counts |= {(one.queue, one.label): one.n for one in self.totals if one.name == tally}
            counter = CounterMetricFamily(name, text, labels=labels)
            for values, n in counts.items():
                counter.add_metric(values[: len(labels)], n)
            yield counter
        for name, (tally, text, labels) in MACHINE_COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=labels)
            for one in self.totals:
                if one.name == tally:
                    counter.add_metric([one.label], one.n)
            yield counter
        for name, (tally, text, labels) in DISTRIBUTIONS.items():
            yield self._distribution(name, tally, text, labels)

    def _gauges(self) -> Iterator[Metric]:
        stats, loads = self.stats, {name: queue.load for name, queue in self.stats.queues.items()}
        states = ("waiting", "scheduled", "ordered", "running")
        yield _gauge("holdfast_database_up", [((), 1)])
        yield _gauge("holdfast_jobs", [((q, state), getattr(load, state)) for q, load in loads.items() for state in states])
        ended = ("completed", "failed", "cancelled")
        yield _gauge("holdfast_jobs_kept", [((state,), stats.counts[state]) for state in ended])
        yield _gauge("holdfast_jobs_stuck", [((q,), load.stuck) for q, load in loads.items()])
        yield _gauge("holdfast_jobs_slow", [((q,), load.slow) for q, load in loads.items()])
        yield _gauge("holdfast_jobs_orphaned", [((q,), queue.orphaned) for q, queue in stats.queues.items()])
        waits = [((q,), load.oldest_wait_seconds or 0.0) for q, load in loads.items()]
        yield _gauge("holdfast_oldest_wait_seconds", waits)
        yield _gauge("holdfast_queue_paused", [((queue.name,), float(queue.paused_at is not None)) for queue in self.queues])
        yield _gauge("holdfast_breaker_open", [((one.name,), float(one.state != "closed")) for one in self.breakers])
        yield _gauge("holdfast_breaker_failures", [((one.name,), one.failures) for one in self.breakers])
        yield _gauge("holdfast_budget_spent_cents", [((row["kind"],), row["spent"]) for row in self.budgets])
        yield _gauge("holdfast_budget_used_up", [((row["kind"],), row["used_up"]) for row in self.budgets])
        draining = sum(worker.draining for worker in self.workers)
        yield _gauge("holdfast_workers", [(("working",), len(self.workers) - draining), (("draining",), draining)])
        yield _gauge("holdfast_machines", list(self.machines.items()))
        yield _gauge("holdfast_worker_slots", [((), sum(worker.concurrency for worker in self.workers))])
        yield _gauge("holdfast_worker_slots_used", [((), sum(worker.running for worker in self.workers))])

    def _distribution(self, name: str, tally: str, text: str, labels: tuple[str, ...]) -> Metric:
        family = HistogramMetricFamily(name, text, labels=labels)
        series: dict[tuple[str, str], list[Tally]] = {}
        for one in self.totals:
            if one.name == tally:
                series.setdefault((one.queue, one.label.rpartition("|")[0]), []).append(one)
        for key, tallies in series.items():
            buckets, reached = [], 0.0
            for bound, n in zip([*map(str, HISTOGRAMS[tally]), "+Inf"], buckets_of(tally, tallies), strict=True):
                reached += n
                buckets.append((bound, reached))
            total = sum(one.n for one in tallies if one.label.endswith(f"|{SUM}"))
            family.add_metric(list(key)[: len(labels)], buckets, total)
        return family


def _gauge(name: str, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    text, labels = GAUGES[name]
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, n in samples:
        family.add_metric(list(values), n)
    return family


class Metrics:
    """Of one served application."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._lock = asyncio.Lock()
        self._reading: Reading | None = None
        self._read_at = float("-inf")
        self._registry = CollectorRegistry()
        text, labels = OWN["holdfast_http_requests_total"]
        self.requests = Counter("holdfast_http_requests_total", text, labels, registry=self._registry)
        text, labels = OWN["holdfast_http_request_seconds"]
        self.request_seconds = Histogram("holdfast_http_request_seconds", text, labels, registry=self._registry)

    async def text(self) -> bytes:
        async with self._lock:
            if time.monotonic() - self._read_at >= CACHE_SECONDS:
                self._reading, self._read_at = await self._read(), time.monotonic()
        return generate_latest(_Once(self._reading)) + generate_latest(self._registry)

    async def _read(self) -> Reading | None:
        """None while the database is away: this server's own counters are told all the same."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                store = self._hf.store
                return Reading(
                    await self._hf.stats(),
                    await store.tally_totals(),
                    await self._live_workers(),
                    await store.queue_list(),
                    await self._hf.breakers.list(),
                    await store.shared("budget_totals"),
                    await self._machines(),
                )
        except (StorageError, TimeoutError):
            return None

    async def _machines(self) -> dict[tuple[str, ...], int]:
        """By kind and state; an orchestrator has asked the provider, which is not asked from here."""
        found: dict[tuple[str, ...], int] = {}
        if self._hf.machines.configured:
            for row in await self._hf.store.shared("machine_list", self._hf.settings.machine_provider):
                key = (row["kind"], row["state"])
                found[key] = found.get(key, 0) + 1
        return found

    async def _live_workers(self) -> list[WorkerRow]:
        now = self._hf.clock.now() or datetime.now(UTC)
        seen = await self._hf.store.worker_list()
        return [row for row in seen if row.last_seen_at and (now - row.last_seen_at).total_seconds() < ALIVE_SECONDS]


class _Once(CollectorRegistry):
    """A registry with what was read."""

    def __init__(self, reading: Reading | None) -> None:
        super().__init__()
        self._found = reading

    def collect(self) -> Iterator[Metric]:
        if self._found is None:
            yield _gauge("holdfast_database_up", [((), 0)])
        else:
            yield from self._found.families()


class CountRequests:
    """Middleware: by route, never by address, so that nobody can make up new series."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
                method = scope["method"] if route != UNKNOWN_ROUTE else "any"
                self._metrics.requests.labels(method, route, str(message["status"])).inc()
                self._metrics.request_seconds.labels(route).observe(time.monotonic() - started)
            await send(message)

        await self._app(scope, receive, counted)


def install(app: FastAPI, hf: Holdfast) -> None:
    app.state.metrics = Metrics(hf)
    app.add_middleware(CountRequests, metrics=app.state.metrics)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **answers(401, 403)},
)
async def metrics(request: Request) -> Response:
    """For Prometheus: the service role; anybody where metrics_public is set."""
    web = web_of(request)
    if not web.hf.settings.metrics_public:
        require(await known_caller(web, request), Act.OPERATE)
    found: Any = request.app.state.metrics
    return Response(await found.text(), media_type=MEDIA_TYPE)
