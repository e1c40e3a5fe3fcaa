"""Redaction as a law: a secret goes wherever it stands, and twice is the same as once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import redact as module
from holdfast.redact import looks_secret, redact, redact_json, redact_value

ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MARK = "QQ"


@pytest.fixture(autouse=True)
def only_our_own_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither patterns of other tests nor this machine's environment."""
    monkeypatch.setattr(module, "_user_patterns", ())
    monkeypatch.setattr(module, "_env_secrets", ())
    yield


def chars(least: int, most: int, alphabet: str = ALNUM) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=least, max_size=most)


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, str]:
    """A secret, and the text in which a program would show it."""
    body = MARK + draw(chars(18, 40))
    kind = draw(
        st.sampled_from(["github", "gitlab", "pat", "slack", "aws", "aws secret", "bearer", "basic", "jwt", "url", "key"])
    )
    if kind == "github":
        return body, f"gh{draw(st.sampled_from('pousr'))}_{body}"
    if kind == "aws":
        body = MARK + draw(chars(14, 14, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"))
        return body, f"{draw(st.sampled_from(['AKIA', 'ASIA']))}{body}"
    if kind == "basic":
        return f"{body[:20]}==", f"Authorization: Basic {body[:20]}=="
    if kind == "url":
        return body, f"https://{draw(st.sampled_from(['oauth2', 'x-token-auth', 'me', '']))}:{body}@host/x.git"
    if kind == "key":
        lines = "\n".join(draw(st.lists(st.just(body), min_size=1, max_size=4)))
        name = draw(st.sampled_from(["", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED "]))
        return body, f"-----BEGIN {name}PRIVATE KEY-----\n{lines}\n-----END {name}PRIVATE KEY-----"
    shapes = {
        "gitlab": f"glpat-{body}",
        "pat": f"github_pat_{body}",
        "slack": f"xoxb-{body}",
        "aws secret": f"aws_secret_access_key = {body}",
        "bearer": f"Bearer {body}",
        "jwt": f"eyJ{body}.{body}.{body}",
    }
    return body, shapes[kind]


around = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="=-_./+Q"), max_size=40)
"""Text that cannot be the secret itself, nor its beginning."""


@given(planted(), around, around)
def test_a_secret_is_gone_wherever_it_stands(secret: tuple[str, str], before: str, after: str) -> None:
    """Behind and before any other text."""
    body, shown = secret
    assert body not in redact(f"{before} {shown} {after}")


@given(planted(), around, around)
def test_a_secret_is_gone_from_json_and_from_urls(secret: tuple[str, str], before: str, after: str) -> None:
    """Where it is written in the ways that programs hand text on."""
    body, shown = secret
    assert body not in redact(json.dumps({"a": f"{before} {shown} {after}"}))
    assert quote(body, safe="") not in redact(f"https://host/?q={quote(shown, safe='')}&x")


@given(planted(), st.recursive(around, lambda below: st.lists(below, max_size=3) | st.dictionaries(around, below, max_size=3)))
def test_a_secret_is_gone_from_every_place_of_a_value(secret: tuple[str, str], rest: Any) -> None:
    """As key, as item, and behind other text; the JSON stays JSON."""
    body, shown = secret
    value = {"rest": rest, "list": [rest, {shown: rest, "text": f"it is {shown}"}]}
    assert body not in repr(redact_value(value))
    assert body not in repr(json.loads(redact_json(json.dumps(value, ensure_ascii=False).encode())))


@given(st.sampled_from(["password", "DB_PASSWORD", "apiKey", "client_secret", "x-auth-token", "Authorization"]), chars(1, 20))
def test_whatever_stands_under_a_secret_name_is_gone(name: str, value: str) -> None:
    """Also where the value itself looks like nothing."""
    assert looks_secret(name)
    assert (
        redact_json(json.dumps({"a": {name: f"~{value}"}}).encode())
        == json.dumps({"a": {name: "[REDACTED]"}}, separators=(",", ":")).encode()
    )


PIECES = [
    "ghp_abcd1234", "ghp_", "Bearer ", "bearer%20", "eyJhbGciOiJI", ".", "..", "://", "%3A%2F%2F", "%40", "%3A", "u:p@", "@",
    "authorization: ", 'Authorization="', "token ", "basic ", "Basic dXNlcjpwYXNzd29yZA==", "secret_access_key=", ":",
    "session token:",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----BEGIN ", "AKIA", "IOSFODNN7EXAMPLE", "glpat-", "xoxb-",
    "hooks.slack.com/services/", "[REDACTED]", "x", "abcdefgh", " ", "\n", '"', "\\", "'", ",", "/", "é", "İ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12))
def test_redacting_twice_changes_nothing_more(parts: list[str]) -> None:
    """Lines pass through redaction at several doors."""
    once = redact("".join(parts))
    assert redact(once) == once


@given(st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=60), st.sampled_from(" ,;\n|"))
def test_words_without_any_sign_of_a_secret_stay(text: str, between: str) -> None:
    """Letters and digits alone are a secret only behind a known beginning."""
    signs = ("eyJ", "AKIA", "ASIA", "xox", "ghp", "bearer", "basic")
    plain = between.join(text[start : start + 12] for start in range(0, len(text), 12))
    if not any(sign in plain or sign in plain.lower() for sign in signs):
        assert redact(plain) == plain
