"""Secrets that must be read again are sealed with the setting `encryption_keys`, each to the row it belongs to."""

from __future__ import annotations

from holdfast.errors import ConfigError, SealedUnreadable
from holdfast.sealing import vault_of

MARK = "sealed:"


def seal(secret: str, keys: tuple[bytes, ...], place: str) -> str:
    """As it is stored: in clear only where no key is configured. Moved to another `place` it cannot be read."""
    return MARK + vault_of(keys).seal(secret, bound_to=place) if keys else secret


def unseal(stored: str, keys: tuple[bytes, ...], place: str) -> str:
    if not stored.startswith(MARK):
        return stored
    if not keys:
        raise ConfigError("A stored secret is sealed: set HOLDFAST_ENCRYPTION_KEYS to what it was sealed with.")
    try:
        return vault_of(keys).open(stored.removeprefix(MARK), bound_to=place)
    except SealedUnreadable as error:
        raise ConfigError(f"A stored secret cannot be read. {error} Set the former key again, or rotate the secret.") from None
