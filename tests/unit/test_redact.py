"""Redaction: every kind of secret goes, ordinary text stays, and no text takes long."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import redact as module
from holdfast.errors import ConfigError
from holdfast.redact import add_pattern, looks_secret, redact, redact_value, refresh_environment

BODY = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEow+a/b==\n-----END RSA PRIVATE KEY-----"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Patterns and collected values of one test do not reach the next."""
    monkeypatch.setattr(module, "_user_patterns", ())
    monkeypatch.setattr(module, "_env_secrets", ())
    yield


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
        "",
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    """A log that is full of holes helps nobody."""
    assert redact(text) == text


@given(
    st.lists(
        st.sampled_from(["ghp_abcd1234", "Bearer ", JWT, KEY, "://", "u:p@", "authorization: ", "basic ", "x", " ", "\n", '"'])
    )
)
def test_redacting_twice_changes_nothing_more(parts: list[str]) -> None:
    """Lines pass through redaction at several doors."""
    once = redact("".join(parts))
    assert redact(once) == once


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


@pytest.mark.parametrize("regex", ["(", "x*"])
def test_a_pattern_that_cannot_work_is_refused(regex: str) -> None:
    """Neither what does not compile nor what matches everywhere."""
    with pytest.raises(ConfigError, match="redaction pattern"):
        add_pattern(regex)


# -- time ------------------------------------------------------------------------------------------------------------

HOSTILE = [
    "ghp_", "ghp_abcd ", "a:", "://", "://a:", "://a:b@", "-----BEGIN ", "-----BEGIN A PRIVATE KEY-----", "-----END ",
    "eyJ", "eyJ.", "eyJabcdefgh ", "eyJabcdefgh.", ".", "-", " ", "bearer ", "basic aB34", "authorization: ", "secret",
    "session_token=", "xox", "AKIA",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_megabyte_of_anything_takes_linear_time(piece: str) -> None:
    """Quadratic time would be minutes; the limit here leaves room for a slow machine."""
    text = piece * (1_000_000 // len(piece))
    started = time.perf_counter()
    redact(text)
    assert time.perf_counter() - started < 1.0


@pytest.mark.parametrize(
    "prefix", ["://", "://a:", "eyJ", "Bearer ", "Basic ", "authorization: ", "ghp_", "-----BEGIN PRIVATE KEY-----"]
)
def test_one_long_run_after_a_marker_takes_linear_time(prefix: str) -> None:
    """The other shape of trouble: one start and a megabyte to give up on."""
    started = time.perf_counter()
    redact(prefix + "a" * 1_000_000)
    assert time.perf_counter() - started < 1.0
