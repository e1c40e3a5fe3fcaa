"""What the platform itself reads: text to be redacted, arguments, schedules, settings, names of tables, elements of Redis."""

from __future__ import annotations

import os
import sqlite3
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import msgspec

from holdfast import Holdfast, codec, sealing
from holdfast.adopt.redis_import import RedisImport, Shape
from holdfast.adopt.table import AdoptedTable, quoted
from holdfast.database_url import parse_database_url
from holdfast.errors import ConfigError, InvalidArguments, InvalidJob, InvalidOption, SealedUnreadable
from holdfast.people.keys import expires_seconds, looks_like_a_key
from holdfast.redact import redact, redact_json, redact_value
from holdfast.runlog.text import TRACEBACK_CHARS_MAX, Limits, cleaned, said, sendable, traceback_text
from holdfast.settings import _FIELDS, load_settings
from holdfast.ticks import decide, when_of
from tests.fuzz.reader import SECRET, Reader, Scratch, check_storable, chosen, only_our_own_rules, parts_of, text_of

SHOWN = (
    f"ghp_{SECRET}",
    f"glpat-{SECRET}",
    f"github_pat_{SECRET}",
    f"xoxb-{SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}==",
    f"aws_secret_access_key = {SECRET}",
    f"eyJhbGciOiJ9.{SECRET}.{SECRET}",
    f"https://oauth2:{SECRET}@host/x.git",
    f"whsec_{SECRET}",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
)
"""A secret as programs show it."""
MARKS = ("Authorization: ", "Bearer ", "Basic ", "://", "@", "-----BEGIN ", "eyJ", "ghp_", "hf_", "%3a%2f%2f", "secret_key=")
REPEATED_CHARS = 60_000


def _redacted(data: bytes) -> None:
    """Between any two texts the secret goes. A second look may take more: `[REDACTED]` can complete what was no URL before."""
    before, after = map(text_of, parts_of(data, 2, b"\n~\n"))
    with only_our_own_rules():
        for shown in SHOWN:
            clean = redact(f"{before} {shown} {after}")
            assert SECRET not in clean, shown
            twice = redact(clean)
            assert redact(twice) == twice, "it never comes to rest"
            assert len(clean) <= 4 * (len(before) + len(after)) + 200, "grew out of bounds"


def _redacted_for_long(data: bytes) -> None:
    """Whatever is repeated: a rule that is not linear takes minutes for this, which the limit for one input notices."""
    text = text_of(data)
    if text:
        with only_our_own_rules():
            redact(text * (REPEATED_CHARS // len(text)))


def _redacted_json(data: bytes) -> None:
    """The shortcut for JSON that holds nothing says the same as the long way."""
    try:
        value = codec.decode(data)
        codec.encode(value)
    except codec.NotJson:
        return
    with only_our_own_rules():
        clean = redact_json(data)
        assert msgspec.json.decode(clean) == redact_value(value)
        assert redact_json(twice := redact_json(clean)) == twice
        planted = redact_value({"deeper": [value, {"text": f"x ghp_{SECRET}"}], "password": SECRET, "api_key": [SECRET]})
        assert SECRET not in str(planted)


class _Odd(Exception):
    pass


def _traceback(data: bytes) -> None:
    said_before, cause = map(text_of, parts_of(data, 2))
    try:
        try:
            raise _Odd(f"{cause} Bearer {SECRET}")
        except _Odd as inner:
            raise ValueError(said_before, f"ghp_{SECRET}") from inner
    except ValueError as error:
        with only_our_own_rules():
            text = traceback_text(error, error.__traceback__)
    assert SECRET not in text and len(text) <= TRACEBACK_CHARS_MAX


LIMITS = Limits(400, 600)


def _log_lines(data: bytes) -> None:
    """Lines `level step duration {metadata} message`: cleaned together as each alone, within the limits, and storable."""
    lines = []
    for raw in data.split(b"\n~\n")[:80]:
        step, duration, metadata, message = parts_of(raw, 4)
        try:
            told: Any = codec.decode(metadata)
        except codec.NotJson:
            told = {"raw": text_of(metadata)}
        try:
            took: Any = codec.decode(duration)
        except codec.NotJson:
            took = None
        kept = told if isinstance(told, dict) else {"value": told}
        lines.append(said("info", text_of(message), text_of(step), took, kept, LIMITS))
    with only_our_own_rules():
        together = cleaned(lines, LIMITS)
        assert together == [one for line in lines for one in cleaned([line], LIMITS)]
    for line in together:
        check_storable([line.message, line.step or "", codec.encode(line.metadata).decode(), line.duration_ms or 0])
        codec.encode([line.metadata, line.duration_ms])
        assert len(line.message.encode()) <= LIMITS.line_bytes + 40
        assert len(msgspec.json.encode(line.metadata)) <= LIMITS.metadata_bytes + 40
    for line in lines:
        msgspec.json.encode(sendable(line, LIMITS))


def _schedule(data: bytes) -> None:
    """Refused, or every tick lies ahead of the moment it was asked for, for ever."""
    day, zone, every = parts_of(data, 3)
    expression: Any = text_of(every)
    try:
        expression = float(expression)
    except ValueError:
        pass
    try:
        when = when_of(expression, text_of(zone))
    except InvalidOption:
        return
    now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=int.from_bytes(day[:3], "big") % 700_000)
    for _ in range(3):
        tick = when.next_after(now)
        assert now < tick < decide(when, "once", tick, tick).next_at
        now = tick


VARIABLES = sorted({name for rule in _FIELDS.values() if rule is not None for name in rule.env})
SECRET_VARIABLES = ("SECRET", "KEY", "DATABASE_URL", "LISTEN_URL", "TOKEN")


def _environment(data: bytes) -> None:
    """Refused by name, without the value where it is secret."""
    first, value = parts_of(data, 2)
    variable, text = chosen(first, VARIABLES), text_of(value).replace("\0", "")
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    with mock.patch.dict(os.environ, {**kept, variable: text}, clear=True), chdir(Scratch.path()):
        try:
            load_settings()
        except ConfigError as error:
            assert any(word in str(error) for word in (variable, "lease", "claim", "jwks_url"))
            if any(word in variable for word in SECRET_VARIABLES) and len(text.strip()) > 12:
                behind_the_scheme = text.strip().partition("://")[2] if "://" in text else text.strip()
                assert len(behind_the_scheme) <= 12 or behind_the_scheme not in str(error), "a secret is quoted"


def _settings_file(data: bytes) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    kind, content = parts_of(data, 2)
    name = chosen(kind, ["holdfast.toml", "pyproject.toml"])
    with mock.patch.dict(os.environ, kept, clear=True), Scratch.holding(name, content) as folder, chdir(folder):
        try:
            load_settings()
        except ConfigError as error:
            assert name in str(error) or "lease" in str(error) or "claim" in str(error) or "jwks_url" in str(error)


def _database_url(data: bytes) -> None:
    """What may be shown of it has no password, however it is written."""
    for url in (text_of(data), f"postgresql://me:{SECRET}@{text_of(data)}", f"postgresql://me:{SECRET}{text_of(data)}"):
        try:
            safe = parse_database_url(url).safe
        except ConfigError as error:
            safe = str(error)
        assert SECRET not in safe or SECRET in text_of(data)


hf = Holdfast("sqlite://")


@hf.task
def take(number: int, name: str = "x", more: dict[str, Any] | None = None, when: datetime | None = None) -> None: ...


def _arguments(data: bytes) -> None:
    """Whatever stands in the database is arguments, which are stored the same again, or is refused."""
    try:
        given = take.load_arguments(data)
    except InvalidArguments as error:
        assert str(error).startswith("take: ")
        return
    try:
        again = take.bind_arguments((), given)
    except InvalidArguments:  # JSON of somebody else may hold more than ours: NUL, or nesting without end
        return
    assert take.load_arguments(again) == given


def _stored_json(data: bytes) -> None:
    try:
        stored = codec.encode(value := codec.decode(data))
    except codec.NotJson:
        return
    assert codec.decode(stored) == value and codec.encode(codec.decode(stored)) == stored
    check_storable(str(stored))


def _sealed(data: bytes) -> None:
    vault = sealing.vault_of((b"k" * 32,))
    try:
        vault.open(text_of(data), bound_to="place")
    except SealedUnreadable:
        return
    raise AssertionError("opened what was never sealed")


def _key(data: bytes) -> None:
    text = text_of(data)
    looks_like_a_key(text)
    try:
        seconds = expires_seconds(text)
    except InvalidOption:
        return
    assert seconds is None or seconds > 0


hf_of_imports = RedisImport(
    hf, "redis://localhost:1/0", "jobs", Shape(task="take", arguments={"number": "a.b", "name": "n"}, tenant="t")
)


def _redis_element(data: bytes) -> None:
    """A job of the tenant that it names, or none."""
    try:
        spec = hf_of_imports._spec(data)
    except InvalidJob:
        return
    fields = msgspec.json.decode(data)
    assert isinstance(fields["t"], str | int) and not isinstance(fields["t"], bool), "nobody's name"
    assert spec.options.tenant == str(fields["t"])


def _table_name(data: bytes) -> None:
    """An identifier stays one, whatever is in it."""
    table, column = map(text_of, parts_of(data, 2))
    try:
        adopted = AdoptedTable(table, columns={"status": column} if column else {})
    except ConfigError:
        return
    with sqlite3.connect(":memory:") as connection:
        name, theirs = quoted(adopted.table), quoted(adopted.column("status"))
        connection.execute(f"CREATE TABLE {name} ({theirs} TEXT)")
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        cursor = connection.execute(f"SELECT {theirs} AS {theirs} FROM {name}")
        assert tables == [adopted.table] and cursor.description[0][0] == adopted.column("status")
    connection.close()


METADATA = b'{"a": [1, null, "x"], "password": "hunter22"}'
CORE = [
    Reader("redact", _redacted, (b"authorization: x\n~\n", b'{"a": "\n~\n"}', b"-----BEGIN\n~\nend"), MARKS),
    Reader("redact-long", _redacted_for_long, (b"eyJ", b"://a", b"authorization: ", b"basic Aa0", b"-----BEGIN "), MARKS, 60),
    Reader(
        "redact-json", _redacted_json, (METADATA, b'"Bearer \\u0041bcdefgh"', b"[1]"), ('"token"', '"key"', "\\u0000", *MARKS)
    ),
    Reader("traceback", _traceback, (b"no such file\nbecause", b"\xff\n\x00"), MARKS),
    Reader("log-lines", _log_lines, (b"step\n12.5\n" + METADATA + b"\nhello\n~\nx\n1e400\n{}\n\x1b[31mred", b"\n\n\n"), MARKS),
    Reader(
        "schedule",
        _schedule,
        (b"abc\nUTC\n0 8 * * mon-fri", b"\x00\nEurope/Paris\n30 2 29 2 *", b"\nUTC\n90.5"),
        ("mon#5", "L", "*/"),
    ),
    Reader(
        "environment", _environment, tuple(f"{name}\n300".encode() for name in VARIABLES), ("sqlite://", "10.0.0.0/8", "true")
    ),
    Reader(
        "settings-file",
        _settings_file,
        (b"holdfast.toml\nlease = 300\nsla_factors = {clip = 3}", b"pyproject.toml\n[tool.holdfast]\ngrace = 1.5\napp = 'a:b'"),
        (*_FIELDS, "[tool.holdfast]", "0x", "inf", "1979-05-27", '"""', "[["),
    ),
    Reader(
        "database-url",
        _database_url,
        (b"sqlite:///jobs.db", b"host:5432/db?user=a&host=b,c"),
        ("postgresql://", "?host=", "%40"),
    ),
    Reader(
        "arguments",
        _arguments,
        (b'{"number": 1, "name": "a", "more": {"x": [1]}}', b'{"number": 2, "when": "2026-01-01T00:00:00Z"}'),
    ),
    Reader("stored-json", _stored_json, (METADATA, b'{"a": 1e5, "b": "\\u0000"}', b"[[[]]]"), ("\\ud800", "1e400", "null")),
    Reader("sealed", _sealed, (sealing.vault_of((b"k" * 32,)).seal("x", bound_to="elsewhere").encode(),)),
    Reader("key", _key, (b"hf_" + b"a" * 43, b"30d", b"1.5")),
    Reader("redis-element", _redis_element, (b'{"a": {"b": 1}, "n": "x", "t": "acme"}',)),
    Reader("table-name", _table_name, (b"audio.asr_jobs\nstate", b'a"b\n"; DROP TABLE x; --'), ('"', "'", "--", "{table}")),
]
