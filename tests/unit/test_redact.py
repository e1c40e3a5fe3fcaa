"""Redaction: every kind of secret goes, ordinary text stays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import redact as module
from holdfast.errors import ConfigError
from holdfast.redact import add_pattern, looks_secret, redact, redact_json, redact_value, refresh_environment

BODY = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow+a/b==\n-----END RSA PRIVATE KEY-----"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patterns and collected values of one test do not reach the next."""
    monkeypatch.setattr(module, "_user_patterns", ())
    monkeypatch.setattr(module, "_env_secrets", ())
    yield


@pytest.mark.case("logger-6")
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        *((f"token {prefix}{BODY}.", "token [REDACTED].") for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
        (f"ghs_12345_{JWT}", "[REDACTED]"),
        (f"x%3Aghp_{BODY}", "x%3A[REDACTED]"),
        ("ghp_abc123 is short", "[REDACTED] is short"),
        (f"github_pat_11ABC_{BODY}", "[REDACTED]"),
        ("glpat-abcDEF_123-xyz", "[REDACTED]"),
        (f"Bearer {BODY}", "Bearer [REDACTED]"),
        (f"BEARER  {BODY}", "BEARER  [REDACTED]"),
        (f"Authorization: Bearer {BODY}\nHost: x", "Authorization: Bearer [REDACTED]\nHost: x"),
        ("Authorization: Basic YTpi", "Authorization: Basic [REDACTED]"),
        ("authorization=Custom s3cret rest", "authorization=[REDACTED] rest"),
        ("authorization: s3cret", "authorization: [REDACTED]"),
        (f"authorization: Authorization: Bearer {BODY}", "authorization: Authorization: Bearer [REDACTED]"),
        ("authorization: Authorization: Custom s3cret", "authorization: Authorization: [REDACTED]"),
        (f"authorization: x Bearer {BODY}", "authorization: [REDACTED] [REDACTED]"),
        (f"Bearer Bearer {BODY}", "Bearer Bearer [REDACTED]"),
        (f"secret_key= secret_access_key={BODY}", "secret_key= secret_access_key=[REDACTED]"),
        ('{"Authorization": "token abc", "a": 1}', '{"Authorization": "token [REDACTED]", "a": 1}'),
        ("sent Basic dXNlcjpwYXNzd29yZA== to it", "sent Basic [REDACTED] to it"),
        ("xoxb-123456-abcdef", "[REDACTED]"),
        ("xoxe.xoxp-1-Mi0yLTM0", "[REDACTED]"),
        ("https://hooks.slack.com/services/T0/B0/abc", "https://hooks.slack.com/services/[REDACTED]"),
        ("id AKIAIOSFODNN7EXAMPLE end", "id [REDACTED] end"),
        ("ASIAIOSFODNN7EXAMPLE", "[REDACTED]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfi", "AWS_SECRET_ACCESS_KEY=[REDACTED]"),
        ('"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG"', '"SecretAccessKey": "[REDACTED]"'),
        ("aws_session_token = 'FwoGZXIvYXdzEBYa'", "aws_session_token = '[REDACTED]'"),
        (f"before {KEY} after", "before [REDACTED] after"),
        (KEY.replace("RSA ", "").replace("\n", "\\n"), "[REDACTED]"),
        (KEY.partition("-----END")[0], "[REDACTED]"),
        (f"jwt={JWT};", "jwt=[REDACTED];"),
        ("https://oauth2:abc@gitlab.com/a.git", "https://[REDACTED]@gitlab.com/a.git"),
        ("https://x-token-auth:abc@bitbucket.org/a", "https://[REDACTED]@bitbucket.org/a"),
        ("postgresql://me:p#a?s@s@db:5432/x", "postgresql://[REDACTED]@db:5432/x"),
        ("https://me@corp.com:secret@host/", "https://[REDACTED]@host/"),
        ("https://0123456789abcdef0123@sentry.io/1", "https://[REDACTED]@sentry.io/1"),
        ("https://proxy/?to=https%3A%2F%2Foauth2%3Aabc%40gitlab.com%2Fa", "https://proxy/?to=https%3A%2F%2F[REDACTED]%40gitlab.com%2Fa"),
        ('{\\"Authorization\\": \\"token abc\\"}', '{\\"Authorization\\": \\"token [REDACTED]\\"}'),
        ("q=Basic%20dXNlcjpwYXNzd29yZA==", "q=Basic%20[REDACTED]"),
        (KEY.replace(" ", "+").replace("\n", "%0A"), "[REDACTED]"),
        (f"Ünïcödé İ authorization: {BODY} ü", "Ünïcödé İ authorization: [REDACTED]"),
        (f"日本語 BEARER {BODY} 日本語", "日本語 BEARER [REDACTED] 日本語"),
        (f"{JWT.partition('.')[0]}..{BODY}.{BODY}", "[REDACTED]"),
        ("see http://a/ and http://u:p@b/ and http://u:q@c/", "see http://a/ and http://[REDACTED]@b/ and http://[REDACTED]@c/"),
    ],
)  # fmt: skip
def test_a_secret_is_replaced_and_its_surroundings_stay(text: str, clean: str) -> None:
    """Each known shape, with the host, the header's name and the rest of the line still readable."""
    assert redact(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "ssh://git@github.com/a/b.git",
        "https://example.com:8080/@scope/pkg?x=1",
        "precision highp_float in the shader",
        "the bearer of this letter",
        "bearer token is missing",
        "WWW-Authenticate: Bearer realm",
        "Basic Authentication is a basic JavaScript feature",
        "authorization failed",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "cursor eyJpZCI6MTIzNDU2Nzg5MH0 next",
        "AKIAIOSFODNN7EXAMPLELONGER",
        "10:20:30 a:b c::d mail me@example.com",
        "https://example.com:8080/path@x",
        "https%3A%2F%2Fexample.com%3A8080%2Fpath%40x",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b of 89e6c98d92887913cadf06b2adb97f26cde4849b",
        "job 018f3a5c-7b1e-7c3d-9a4b-1c2d3e4f5a6b, token_count: 5",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "def connect(token: str, password=None) -> None: ...  # session = get_session()",
        "/srv/app/.venv/lib/python3.11/site-packages/google/auth/transport/_http_client.py:42",
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """A log that is full of holes helps nobody."""
    assert redact(text) == text


# -- the environment -------------------------------------------------------------------------------------------------


def test_values_of_secret_variables_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name: the value itself may look like anything."""
    monkeypatch.setenv("MAIL_PASSWORD", "plain words here")
    refresh_environment()
    assert redact("login with 'plain words here' failed") == "login with '[REDACTED]' failed"


def test_the_longer_of_two_secret_values_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the end of the longer one would stay behind."""
    monkeypatch.setenv("A_TOKEN", "abcdefgh")
    monkeypatch.setenv("B_TOKEN", "abcdefghijkl")
    refresh_environment()
    assert redact("abcdefghijkl") == "[REDACTED]"


def test_short_values_and_harmless_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password of three letters would punch holes into every word."""
    monkeypatch.setenv("DB_PASSWORD", "app")
    monkeypatch.setenv("TOKEN_PATH", "/var/run/token")
    refresh_environment()
    assert redact("app reads /var/run/token") == "app reads /var/run/token"


def test_the_password_of_a_url_in_the_environment_is_replaced_alone_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers take the URL apart before they complain."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:p%40ss%20word%21@db/app")
    refresh_environment()
    assert redact("tried p%40ss%20word%21, that is p@ss word!, on db") == "tried [REDACTED], that is [REDACTED], on db"


def test_a_secret_variable_is_known_in_json_and_in_urls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it was written down."""
    monkeypatch.setenv("SMTP_PASS", 'ü"x\\ y/z&w')
    refresh_environment()
    value = os.environ["SMTP_PASS"]
    for written in (
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
        repr(value)[1:-1],
    ):
        assert redact(f"<{written}>") == "<[REDACTED]>"


def test_a_number_that_is_a_secret_variable_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nobody made text of it."""
    monkeypatch.setenv("VAULT_TOKEN", "4711081500")
    refresh_environment()
    assert redact_value({"pin": 4711081500, "other": 4711081501}) == {"pin": "[REDACTED]", "other": 4711081501}


def test_single_lines_of_a_key_in_the_environment_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that prints the key line by line gives no line away."""
    monkeypatch.setenv("GITHUB_APP_PRIVATE_KEY", "-----BEGIN X-----\nMIIEowIBAAKCAQEAabc\n-----END X-----")
    refresh_environment()
    assert redact("line: MIIEowIBAAKCAQEAabc") == "line: [REDACTED]"


def test_the_environment_is_read_once_until_refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it for each line would cost more than everything else."""
    monkeypatch.setenv("NEW_SECRET", "opensesame")
    before = redact("opensesame")
    refresh_environment()
    assert (before, redact("opensesame")) == ("opensesame", "[REDACTED]")


# -- nested values ---------------------------------------------------------------------------------------------------


def test_nested_values_are_redacted_in_place_of_their_text() -> None:
    """Dicts, lists and tuples keep their shape; other types pass."""
    value = {"a": [f"ghp_{BODY}", 1, None, ("x", f"Bearer {BODY}")], f"ghp_{BODY}": 2.5}
    assert redact_value(value) == {"a": ["[REDACTED]", 1, None, ("x", "Bearer [REDACTED]")], "[REDACTED]": 2.5}


def test_what_stands_under_a_secret_key_goes_as_a_whole() -> None:
    """Whatever it is, at any depth; that nothing is set stays visible."""
    value = {"db": {"password": "x", "apiKey": ["y"], "token": 12, "secret": None, "cookie": False, "token_count": 7}}
    clean = {"password": "[REDACTED]", "apiKey": "[REDACTED]", "token": "[REDACTED]", "secret": None, "cookie": False}
    assert redact_value(value) == {"db": {**clean, "token_count": 7}}


def test_the_given_value_is_not_changed() -> None:
    """The caller goes on using it."""
    value = {"password": "x", "list": [f"ghp_{BODY}"]}
    redact_value(value)
    assert value == {"password": "x", "list": [f"ghp_{BODY}"]}


def test_a_value_that_contains_itself_comes_to_an_end() -> None:
    """Metadata comes from anybody."""
    loop: list[object] = ["x"]
    loop += [loop, loop]
    assert redact_value(loop) == ["x", "[REDACTED]", "[REDACTED]"]


def test_a_value_nested_too_deeply_is_cut() -> None:
    """A thousand levels are an attack or a mistake, not metadata."""
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "[REDACTED]" in repr(redact_value(deep))


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "PGPASSWORD", "api_key", "apiKey", "X-API-Key", "authorization", "access_token", "authToken",
     "secret", "client_secret", "QSTASH_CURRENT_SIGNING_KEY", "GITHUB_APP_PRIVATE_KEY", "AWS_SECRET_ACCESS_KEY",
     "FLY_API_TOKEN", "Set-Cookie"],
)  # fmt: skip
def test_a_name_that_looks_secret_is_known(name: str) -> None:
    """In every spelling that keys and variables have."""
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", ["", "user", "tokens", "max_tokens", "token_type", "tokenizer", "secrets", "secret_name", "key", "monkey"]
)
def test_a_name_that_only_resembles_one_is_not(name: str) -> None:
    """Counts, kinds and names of secrets are no secrets."""
    assert not looks_secret(name)


# -- patterns of the user's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("regex", [r"cust-\d+", re.compile(r"CUST-\d+", re.IGNORECASE)])
def test_an_added_pattern_is_redacted_too(regex: str | re.Pattern[str]) -> None:
    """As text or compiled."""
    add_pattern(regex)
    assert redact("for cust-123 only") == "for [REDACTED] only"


@pytest.mark.parametrize("regex", ["(", "x*", "[A-Z]{3}", rb"bytes"])
def test_a_pattern_that_cannot_work_is_refused(regex: Any) -> None:
    """Neither what does not compile, nor what matches everywhere or its own replacement, nor what is for bytes."""
    with pytest.raises(ConfigError, match="redaction pattern"):
        add_pattern(regex)


def test_an_added_pattern_sees_a_long_text_in_pieces_that_end_with_a_line() -> None:
    """So that a slow pattern is slow on a piece at a time, and what stands in one line is found wherever it stands."""
    add_pattern(r"cust-\d+")
    add_pattern(r"(?s)\Aline.{40000,}")
    text = "line cust-12345678\n" * 5000
    assert redact(text) == "line [REDACTED]\n" * 5000


# -- JSON ------------------------------------------------------------------------------------------------------------


def test_json_without_secrets_is_the_same_bytes() -> None:
    """Not read and written again: numbers and spaces stay as they were."""
    data = b'{"rows": 1.50, "tokens": 5, "names": ["a", null]}'
    assert redact_json(data) is data


@pytest.mark.parametrize(
    ("data", "clean"),
    [
        (f'{{"a":["ghp_{BODY}"]}}', '{"a":["[REDACTED]"]}'),
        ('{"db":{"password":"x"}}', '{"db":{"password":"[REDACTED]"}}'),
        ('{"api---Key":"x"}', '{"api---Key":"[REDACTED]"}'),
        ('{"pass\\u0077ord":"x"}', '{"password":"[REDACTED]"}'),
        (f'["bearer\\n{BODY}"]', '["bearer\\n[REDACTED]"]'),
        ('"authorization: \\"s3cret\\""', '"authorization: \\"[REDACTED]\\""'),
    ],
)
def test_json_is_redacted_by_text_and_by_key_and_stays_json(data: str, clean: str) -> None:
    """Also where JSON writes characters in another way than text has them."""
    assert redact_json(data.encode()) == clean.encode()
