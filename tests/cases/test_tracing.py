"""Traces: the run of a job belongs to the trace that it was enqueued under."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import Abort, Holdfast, RetryLater, current
from tests.conformance.scene import insert

EXPORTER = InMemorySpanExporter()
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture(scope="module", autouse=True)
def provider() -> Iterator[None]:
    """A program has one and cannot take it back, so it is put in place by hand: other modules' tests are not traced."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "_TRACER_PROVIDER", made)
        yield


@pytest.fixture(autouse=True)
def nothing_before() -> Iterator[None]:
    EXPORTER.clear()
    yield
    EXPORTER.clear()


def spans(name: str) -> list[ReadableSpan]:
    return [span for span in EXPORTER.get_finished_spans() if span.name == name]


def trace_id(span: ReadableSpan) -> int:
    return span.get_span_context().trace_id  # type: ignore[union-attr]


async def test_enqueue_and_run_are_of_one_trace(hf: Holdfast) -> None:
    """What the caller does, the enqueue, the run, and what the task does: each below the one before."""
    tracer = trace.get_tracer("test")

    @hf.task(queue="mail")
    async def work() -> None:
        with tracer.start_as_current_span("inside"):
            pass

    with tracer.start_as_current_span("request"):
        job = await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    chain = [spans(name)[0] for name in ("request", "enqueue mail", "run mail", "inside")]
    for above, below in itertools.pairwise(chain):
        assert below.parent is not None and below.parent.span_id == above.get_span_context().span_id
    assert {trace_id(span) for span in chain} == {trace_id(chain[0])}
    assert (chain[1].kind, chain[2].kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    said = chain[2].attributes or {}
    assert said["messaging.system"] == "holdfast"
    assert said["messaging.destination.name"] == "mail"
    assert said["messaging.operation.type"] == "process"
    assert said["messaging.message.id"] == job.id
    assert said["holdfast.outcome"] == "completed"


async def test_each_attempt_has_a_span_below_the_same_enqueue(hf: Holdfast) -> None:
    """The failed one says so, without the secret in its message."""

    @hf.task(queue="mail", backoff=(0.0,))
    async def work() -> None:
        if current().attempt == 1:
            raise RetryLater(0, f"token {SECRET}")

    await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    first, second = spans("run mail")
    (above,) = spans("enqueue mail")
    assert {span.parent.span_id for span in (first, second) if span.parent} == {above.get_span_context().span_id}
    assert (first.status.status_code, second.status.status_code) == (trace.StatusCode.ERROR, trace.StatusCode.UNSET)
    assert (first.attributes or {})["error.type"] == "retry_later"
    assert SECRET not in first.to_json() and "[REDACTED]" in first.to_json()


async def test_a_task_in_a_thread_is_traced_too(hf: Holdfast) -> None:
    """Its own spans lie below the run."""

    @hf.task(queue="mail")
    def work() -> None:
        with trace.get_tracer("test").start_as_current_span("inside"):
            pass

    await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    assert trace_id(spans("inside")[0]) == trace_id(spans("run mail")[0])


async def test_one_job_does_not_inherit_the_trace_of_another(hf: Holdfast) -> None:
    """They share a slot, one after the other; those enqueued together share their enqueue."""

    @hf.task(queue="mail")
    async def work() -> None: ...

    await work.enqueue()
    await work.enqueue()
    await hf.enqueue_many([work.job(), work.job()])
    await hf.run_worker(exit_when_idle=0.0, concurrency=1)
    assert len(spans("enqueue mail")) == 3
    assert len({trace_id(span) for span in spans("run mail")}) == 3
    assert len(spans("run mail")) == 4


@pytest.mark.parametrize("context", ["rubbish", "[]", '{"traceparent": "00-zz"}', '{"traceparent": 7}'])
async def test_a_stored_context_that_makes_no_sense_harms_nobody(hf: Holdfast, context: str) -> None:
    """The run begins a trace of its own."""

    @hf.task(queue="mail", name="send_receipt")
    async def work() -> None: ...

    job = await insert(hf.store, trace_context=context)
    await hf.run_worker(exit_when_idle=0.0)
    assert (await hf.get(job.id)).state == "completed"
    assert spans("run mail")[0].parent is None


async def test_a_tracer_that_breaks_breaks_no_job(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is accepted and run all the same."""

    @hf.task(queue="mail")
    async def work() -> None: ...

    def broken(*_: object) -> None:
        raise RuntimeError("no exporter")

    monkeypatch.setattr(trace, "get_tracer", broken)
    job = await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    assert (await hf.get(job.id)).state == "completed"


async def test_a_failed_job_has_a_failed_span(hf: Holdfast) -> None:
    """With the job's own code."""

    @hf.task(queue="mail")
    async def work() -> None:
        raise Abort("gone", code="repository_gone")

    await work.enqueue()
    await hf.run_worker(exit_when_idle=0.0)
    said = spans("run mail")[0].attributes or {}
    assert (said["error.type"], said["holdfast.outcome"]) == ("repository_gone", "failed")


ISOLATED = """
import sys
from opentelemetry import trace
from holdfast import Holdfast
hf = Holdfast(sys.argv[1] if __name__ == "__main__" else None)

@hf.task(queue="mail", isolate=True)
def work() -> str:
    return format(trace.get_current_span().get_span_context().trace_id, "032x")
"""


async def test_an_isolated_task_is_in_the_trace_of_its_run(
    hf: Holdfast, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own."""
    (tmp_path / "traced_alone.py").write_text(ISOLATED, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "traced_alone", raising=False)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)
    import traced_alone  # type: ignore[import-not-found]

    job = await traced_alone.work.enqueue()
    await traced_alone.hf.run_worker(exit_when_idle=0.0)
    result = await traced_alone.hf.wait_for_result(job.id)
    await traced_alone.hf.aclose()
    assert result == format(trace_id(spans("run mail")[0]), "032x")


def test_who_does_not_trace_pays_nothing(sqlite_url: str) -> None:
    """Nothing is imported, and no context is stored."""
    probe = (
        "import asyncio, sys\nfrom holdfast import Holdfast\nhf = Holdfast(sys.argv[1])\n"
        "@hf.task\nasync def work() -> None: ...\n"
        "async def main():\n"
        "    job = await work.enqueue()\n    await hf.run_worker(exit_when_idle=0.0)\n"
        "    done = await hf.get(job.id)\n    await hf.aclose()\n    return done\n"
        "done = asyncio.run(main())\n"
        "print(done.state, done.trace_context, [m for m in sys.modules if m.startswith('opentelemetry')])"
    )
    path = ":".join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", probe, sqlite_url], capture_output=True, text=True, timeout=60, env={"PYTHONPATH": path}
    )
    assert done.stdout == "completed None []\n", done.stderr
