"""The log of a process: each line says which request or run it belongs to, and holds no secret."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.cli.process_log import ConsoleLines, JsonLines, log_to_stderr
from holdfast.correlation import request_id

log = logging.getLogger("holdfast.test")


class Kept(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=[JsonLines, ConsoleLines])
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    handler = Kept(request.param())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)


def test_a_line_names_the_request(kept: Kept) -> None:
    """While there is one."""
    token = request_id.set("req-1")
    log.info("inside")
    request_id.reset(token)
    log.info("outside")
    assert ["req-1" in line for line in kept.lines] == [True, False]


async def test_a_line_names_the_run(kept: Kept, sqlite_url: str) -> None:
    """Whatever the task logs with, in a coroutine and in a thread."""
    hf = Holdfast(sqlite_url)

    @hf.task
    async def here() -> None:
        log.info("from a task")

    @hf.task
    def there() -> None:
        log.info("from a task")

    for task in (here, there):
        job = await task.enqueue()
        await hf.run_worker(exit_when_idle=0.0)
        line = kept.lines.pop()
        assert job.id in line and (await hf.get(job.id)).run_id in line
    await hf.aclose()


def test_a_json_line_is_one_object_with_everything_in_it() -> None:
    """Time, level, logger, message, what was given as extra, and an exception with its lines."""
    try:
        raise ValueError("bad")
    except ValueError:
        record = log.makeRecord("x", logging.ERROR, "f", 1, "no %s", ("luck",), sys.exc_info(), extra={"status": 500})
    text = JsonLines().format(record)
    line = json.loads(text)
    assert "\n" not in text
    assert (line["level"], line["logger"], line["message"], line["status"]) == ("error", "x", "no luck", 500)
    assert line["exception"].endswith("ValueError: bad")


def test_a_secret_in_a_line_is_not_written(kept: Kept) -> None:
    """Neither in the message nor in an exception."""
    secret = "ghp_" + "a1B2" * 9
    try:
        raise ValueError(secret)
    except ValueError:
        log.exception("token %s", secret)
    assert secret not in kept.lines[0] and "[REDACTED]" in kept.lines[0]


def test_text_that_is_no_utf8_does_not_break_a_json_line() -> None:
    """Half a surrogate pair comes from anywhere."""
    line = JsonLines().format(log.makeRecord("x", logging.INFO, "f", 1, "half \ud800", (), None, extra={"odd": object()}))
    assert json.loads(line)["message"] == "half ?"


def test_an_app_that_has_set_up_logging_keeps_it() -> None:
    """Nothing is written twice."""
    root = logging.getLogger()
    before = list(root.handlers)
    assert before, "pytest's own handlers stand for those of an app"
    log_to_stderr("json")
    assert root.handlers == before
