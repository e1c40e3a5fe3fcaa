"""Strings that were written to break something: stored as they are, or refused, never executed."""

from __future__ import annotations

import pytest

from holdfast import Abort, Holdfast, State, current
from tests.cases.steps import drain, jobs_stored, lines

STRINGS = {
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>&lt;",
    "ansi": "\x1b[2J\x1b[31mred\x1b]0;title\x07\r\n\x08",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 é ﷽ \U0010ffff",
    "rtl": "abc\u202egnp.exe \u2066hidden\u2069 שלום",
    "sql": "'; DROP TABLE holdfast_jobs; DROP SCHEMA holdfast CASCADE; -- \" ` $1 :name %s {} \\",
    "json": '{"a": [1, "\\u0000"]} \\u0000 \\ud800 null',
    "invisible": "\u200b\ufeff\u00a0\u2028\u2029\x7f\x85",
}
SHORT = 100


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", STRINGS)
async def test_hostile_text_comes_back_from_every_field_as_it_went_in(hf: Holdfast, what: str) -> None:
    """Names, keys, tags, metadata, arguments, result, log and progress."""
    text = STRINGS[what]
    queue = text[:SHORT]

    @hf.task(queue=queue)
    async def echo(value: str, nested: dict[str, list[str]]) -> dict[str, str]:
        current().log.warning(text, step=text[:SHORT], **{"key " + text: text})
        current().progress(0.5, text[:SHORT])
        return {value: nested[value][0]}

    options = {"tenant": text, "project": text, "actor": text, "unique": text, "order": text, "enqueued_by": text}
    job = await echo.options(**options, tags=[text[:SHORT]], meta={text: text}).enqueue(text, {text: [text]})  # type: ignore[arg-type]
    assert [found.id for found in await hf.jobs(tenant=text, tag=text[:SHORT], queue=queue)] == [job.id]
    again = await echo.options(tenant=text, unique=text).enqueue("", {"": [""]})
    assert (again.id, again.created) == (job.id, False)
    await drain(hf)
    done = await hf.get(job.id)
    assert (done.state, done.output, done.args) == (State.COMPLETED, {text: text}, {"value": text, "nested": {text: [text]}})
    assert (done.tenant, done.project, done.actor, done.unique_key, done.order_key, done.enqueued_by) == (text,) * 6
    assert (done.queue, done.tags, done.meta, done.stage) == (queue, [text[:SHORT]], {text: text}, text[:SHORT])
    (line,) = await lines(hf, done)
    assert (line.message, line.step, line.metadata) == (text, text[:SHORT], {"key " + text: text})
    assert done.as_dict()["result"] == {text: text}


@pytest.mark.case("D38")
@pytest.mark.parametrize("what", STRINGS)
async def test_hostile_text_in_errors_cancels_and_retries_is_kept_on_one_line(hf: Holdfast, what: str) -> None:
    """An error's message has no control characters left: it is read on terminals."""
    text = STRINGS[what]

    @hf.task
    async def fail() -> None:
        raise Abort(text, code=text)

    job = await fail.enqueue()
    await drain(hf)
    failed = await hf.get(job.id)
    assert failed.state is State.FAILED and failed.error_message and failed.error_code
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in failed.error_message)
    await hf.retry(job.id, by=text)
    await hf.cancel(job.id, by=text)
    assert (await hf.get(job.id)).cancel_requested_by == text
    assert [event.actor for event in await hf.events(job.id)][-2:] == [text, text]
    assert await jobs_stored(hf) == 1


@pytest.mark.case("D38")
async def test_arguments_of_a_megabyte_of_hostile_text_survive(hf: Holdfast) -> None:
    """In one line, with every kind of character."""
    text = ("".join(STRINGS.values()) * 3000)[:200_000]

    @hf.task
    async def echo(value: str) -> str:
        return value

    job = await echo.enqueue(text)
    await drain(hf)
    assert await job.result(timeout=0) == text


@pytest.mark.case("D38")
@pytest.mark.parametrize("number", [0, -0.0, 2**53 + 1, 2**63 - 1, -(2**63), 1e20, 5e-324, 0.1])
async def test_numbers_come_back_as_they_went_in(hf: Holdfast, number: float) -> None:
    """Through arguments and result, on both databases."""

    @hf.task
    async def echo(value: int | float) -> int | float:
        return value

    job = await echo.enqueue(number)
    await drain(hf)
    assert await job.result(timeout=0) == number
