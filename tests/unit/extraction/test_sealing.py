"""Tokens at rest can be opened with the key alone, and only for the row they were sealed for."""

from __future__ import annotations

import base64

import pytest

from holdfast.errors import ConfigError
from holdfast.extraction.errors import TokenUnreadable
from holdfast.extraction.sealing import VARIABLE, Vault

OLD, NEW = b"o" * 32, b"n" * 32


def test_what_is_sealed_is_not_readable_and_never_the_same_twice() -> None:
    """Neither the text nor its sameness shows."""
    vault = Vault([NEW])
    sealed = [vault.seal("ghp_secret", bound_to="acme") for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert "ghp_secret" not in sealed[0] and b"ghp_secret" not in base64.b64decode(sealed[0].partition(":")[2])
    assert [vault.open(one, bound_to="acme") for one in sealed] == ["ghp_secret"] * 2


@pytest.mark.parametrize("damage", ["moved", "changed", "cut", "nonsense", "key gone"])
def test_what_was_moved_or_changed_stays_closed(damage: str) -> None:
    """A row copied to another organization is of no use to it."""
    vault = Vault([NEW])
    sealed = vault.seal("ghp_secret", bound_to="acme")
    name, _, text = sealed.partition(":")
    data = bytearray(base64.b64decode(text))
    data[-1] ^= 1
    given = {
        "changed": f"{name}:{base64.b64encode(bytes(data)).decode()}",
        "cut": sealed[: len(name) + 9],
        "nonsense": f"{name}:%%%",
    }.get(damage, sealed)
    opener = Vault([OLD]) if damage == "key gone" else vault
    with pytest.raises(TokenUnreadable):
        opener.open(given, bound_to="rival" if damage == "moved" else "acme")


def test_a_new_key_in_front_seals_and_the_old_one_still_opens() -> None:
    """That is how keys are changed without a pause."""
    sealed = Vault([OLD]).seal("ghp_secret", bound_to="acme")
    both = Vault([NEW, OLD])
    assert both.open(sealed, bound_to="acme") == "ghp_secret"
    assert not both.is_newest(sealed)
    assert both.is_newest(both.seal("x", bound_to="acme"))


def test_keys_come_from_the_environment_in_either_alphabet() -> None:
    """Separated by commas, the newest first; none is no vault."""
    key = bytes(range(223, 255))
    words = [base64.b64encode(key).decode(), base64.urlsafe_b64encode(OLD).decode().rstrip("=")]
    vault = Vault.from_environment({VARIABLE: ", ".join(words)})
    assert vault is not None
    assert Vault([key]).open(vault.seal("x", bound_to="a"), bound_to="a") == "x"
    assert Vault.from_environment({}) is None


@pytest.mark.parametrize("text", ["short", "c2hvcnQ=", "ä" * 44, "x" * 45])
def test_a_wrong_key_is_refused_by_name_and_not_quoted(text: str) -> None:
    """At start, with what would be right."""
    with pytest.raises(ConfigError, match=VARIABLE) as refused:
        Vault.from_environment({VARIABLE: text})
    assert text not in str(refused.value)
