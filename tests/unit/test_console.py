"""What a process prints by itself: clean, whatever handlers the application has."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.console import LOGGERS, RedactingFormatter, guard_log
from tests.support.source import text_files

TOKEN = "ghp_a1B2c3D4e5F6g7H8i9J0"


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """What an ordinary handler of the application prints of Holdfast's log."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    ours = logging.getLogger("holdfast")
    ours.addHandler(handler)
    yield out
    ours.removeHandler(handler)


def test_a_handler_of_the_application_gets_clean_lines_and_tracebacks(printed: io.StringIO) -> None:
    """The logger itself is guarded, so no handler has to be."""
    guard_log()
    guard_log()
    try:
        raise ValueError(TOKEN)
    except ValueError:
        logging.getLogger("holdfast").exception("failed with %s", TOKEN)
    assert printed.getvalue().startswith("failed with [REDACTED]\nTraceback") and TOKEN not in printed.getvalue()


def test_a_line_whose_arguments_do_not_fit_is_printed_all_the_same(printed: io.StringIO) -> None:
    """A mistake in a log line ends nothing, and gives nothing away."""
    guard_log()
    logging.getLogger("holdfast").warning("%d of %d", TOKEN)
    assert printed.getvalue() == "%d of %d ('[REDACTED]',)\n"


@pytest.mark.parametrize("name", ["holdfast.web", "holdfast.extraction", "holdfast.of.an.application"])
def test_loggers_below_ours_are_guarded_too(name: str) -> None:
    """Under handlers of the application, whether the logger was made before or after."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logging.getLogger().addHandler(handler)
    before = logging.getLogger(f"{name}.before")
    guard_log()
    try:
        raise ValueError(TOKEN)
    except ValueError:
        before.exception("failed with %s", TOKEN)
    logging.getLogger(f"{name}.after").warning(TOKEN)
    logging.getLogger("holdfasted").warning("not ours: %s", "as it is")
    logging.getLogger().removeHandler(handler)
    assert TOKEN not in out.getvalue()
    assert out.getvalue().startswith("failed with [REDACTED]\nTraceback")
    assert out.getvalue().endswith("[REDACTED]\nnot ours: as it is\n")


def test_records_without_a_name_can_still_be_made() -> None:
    """As logging itself does for those that come from elsewhere."""
    guard_log()
    assert logging.makeLogRecord({"msg": "hello"}).getMessage() == "hello"


def test_control_characters_are_shown_and_not_obeyed(printed: io.StringIO) -> None:
    """A name neither begins a line of its own nor moves the cursor."""
    guard_log()
    logging.getLogger("holdfast").warning("schedule %s", "a\r\n2026 ERROR forged\x1b[2J\u202e")
    assert printed.getvalue() == "schedule a\\r\\n2026 ERROR forged\\x1b[2J\\u202e\n"


def test_the_formatter_cleans_the_whole_line() -> None:
    """Also what comes from the record's own fields."""
    record = logging.LogRecord(TOKEN, logging.INFO, "x.py", 1, "hello", None, None)
    assert RedactingFormatter("%(name)s %(message)s").format(record) == "[REDACTED] hello"


CRASHES = """
import logging, sys, threading
from holdfast.console import guard_console
guard_console()
class Odd(Exception):
    def __str__(self): raise ValueError
class Late:
    def __del__(self): raise ValueError("{token} late")
def fail(error): raise error
for error in (RuntimeError("{token} in a thread"), Odd(), SystemExit("{token} silent")):
    thread = threading.Thread(target=fail, args=(error,)); thread.start(); thread.join()
Late()
logging.getLogger("somebody").warning("{token} logged")
raise RuntimeError("{token} at the end")
"""


def test_exceptions_that_nobody_caught_are_printed_without_secrets() -> None:
    """In the main thread, in others, in `__del__`, and what logging prints where it was never set up."""
    ended = subprocess.run(
        [sys.executable, "-c", CRASHES.format(token=TOKEN)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 1 and TOKEN not in ended.stderr and "silent" not in ended.stderr
    for text in ("[REDACTED] in a thread", "Odd", "[REDACTED] late", "[REDACTED] logged", "[REDACTED] at the end"):
        assert text in ended.stderr


@pytest.mark.parametrize("name", LOGGERS)
def test_a_record_factory_of_the_application_takes_no_redaction_away(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """It may be set after Holdfast was made, and call no other."""
    guard_log()
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(logging.LogRecord)
    try:
        logging.getLogger(name).warning("at postgres://u:secretpassword@host/db")
    finally:
        logging.setLogRecordFactory(before)
    assert "secretpassword" not in caplog.text
    assert "at postgres://" in caplog.text


def test_every_logger_of_holdfast_is_listed() -> None:
    """One that is not has no filter."""
    code = "\n".join(text for path, text in text_files().items() if path.startswith("src/") and path.endswith(".py"))
    assert set(re.findall(r'getLogger\("(holdfast[^"]*)"\)', code)) == set(LOGGERS)
