"""Traces that join enqueue and run, where the application uses OpenTelemetry. Nothing is imported here on its behalf: an
application that traces has imported it itself, all others pay for one look at `sys.modules`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from typing import Any, Protocol

log = logging.getLogger("holdfast")

SYSTEM = "holdfast"
CONTEXT_CHARS_MAX = 4_000


class Message(Protocol):
    """A job on its way in."""

    @property
    def id(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def task(self) -> str: ...


class Run(Message, Protocol):
    """A job on its way out."""

    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def trace_context(self) -> str | None: ...


def context_of_enqueue(jobs: Sequence[Message]) -> str | None:
    """To be stored with the jobs: the trace they are enqueued under, as JSON; one short span marks the moment in it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or not jobs or not _is_traced(trace):
        return None
    try:
        return _context_of_enqueue(trace, jobs)
    except Exception:  # somebody's exporter, sampler or propagator; a job is accepted whatever they do
        log.exception("The enqueue was not traced")
        return None


def _is_traced(trace: Any) -> bool:
    """Others import the API as well, FastAPI for one; without a provider and without a span there is nothing to tell."""
    provided = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    return provided or bool(trace.get_current_span().get_span_context().is_valid)


def _context_of_enqueue(trace: Any, jobs: Sequence[Message]) -> str | None:
    from opentelemetry import propagate

    first = jobs[0]
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": first.queue,
        "holdfast.task": first.task,
    }
    if len(jobs) == 1:
        attributes["messaging.message.id"] = first.id
    else:
        attributes["messaging.batch.message_count"] = len(jobs)
    tracer = trace.get_tracer(SYSTEM)
    with tracer.start_as_current_span(f"enqueue {first.queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes):
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
    text = json.dumps(carrier)
    return text if carrier and len(text) <= CONTEXT_CHARS_MAX else None


def start_run(run: Run) -> Any:
    """A span below the one that enqueued the job; None where nobody traces."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": run.queue,
        "messaging.message.id": run.id,
        "holdfast.task": run.task,
        "holdfast.run_id": run.run_id,
        "holdfast.attempt": run.attempt,
    }
    try:
        span: Any = trace.get_tracer(SYSTEM).start_span(
            f"run {run.queue}", context=_stored(run.trace_context), kind=trace.SpanKind.CONSUMER, attributes=attributes
        )
        return span
    except Exception:  # nor may they keep a job from running
        log.exception("The run was not traced")
        return None


def enter(span: Any) -> None:
    """Make it the current span of this context."""
    from opentelemetry import context, trace

    context.attach(trace.set_span_in_context(span))


def end_run(span: Any, outcome: str, error_code: str | None, error_message: str | None) -> None:
    """`error_message` is the job's own: one line, without secrets."""
    from opentelemetry.trace import Status, StatusCode

    try:
        span.set_attribute("holdfast.outcome", outcome)
        if error_code is not None:
            span.set_attribute("error.type", error_code)
            span.set_status(Status(StatusCode.ERROR, error_message))
        span.end()
    except Exception:
        log.exception("The end of a run was not traced")


def carried(span: Any) -> str | None:
    """The span, for a process of its own."""
    if span is None:
        return None
    from opentelemetry import propagate, trace

    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    return json.dumps(carrier)


def enter_carried(text: str | None) -> None:
    """In that process: what the task does there belongs to the span too."""
    if text is not None and "opentelemetry.trace" in sys.modules:
        from opentelemetry import context

        context.attach(_stored(text))


def flush() -> None:
    """Before a process ends without its exit handlers."""
    trace = sys.modules.get("opentelemetry.trace")
    force_flush = getattr(trace and trace.get_tracer_provider(), "force_flush", None)
    if force_flush is not None:
        force_flush(2_000)


def _stored(text: str | None) -> Any:
    """An empty context where there is none: a slot of a worker must not inherit anybody's."""
    from opentelemetry import propagate
    from opentelemetry.context import Context

    try:
        carrier = json.loads(text) if text else {}
    except ValueError:
        carrier = {}
    named = carrier.items() if isinstance(carrier, dict) else ()
    return propagate.extract({name: value for name, value in named if isinstance(value, str)}, Context())
