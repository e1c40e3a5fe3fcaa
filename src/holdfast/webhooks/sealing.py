"""Secrets that must be read again are sealed with the setting `encryption_key`, each to the row it belongs to."""

from __future__ import annotations

import base64
import hashlib
import secrets

from holdfast.errors import ConfigError

MARK = "sealed1:"
_NONCE_BYTES = 12


def seal(secret: str, key: str | None, place: str) -> str:
    """As it is stored: in clear only where no key is configured. Moved to another `place` it cannot be read."""
    if key is None:
        return secret
    nonce = secrets.token_bytes(_NONCE_BYTES)
    sealed = _cipher(key).encrypt(nonce, secret.encode(), place.encode())
    return MARK + base64.b64encode(nonce + sealed).decode()


def unseal(stored: str, key: str | None, place: str) -> str:
    if not stored.startswith(MARK):
        return stored
    if key is None:
        raise ConfigError("A stored secret is sealed: set encryption_key (HOLDFAST_ENCRYPTION_KEY) to what it was sealed with.")
    from cryptography.exceptions import InvalidTag

    data = base64.b64decode(stored.removeprefix(MARK))
    try:
        return str(_cipher(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode()).decode())
    except InvalidTag:
        raise ConfigError(
            "A stored secret was sealed with another encryption_key: set the former one again, or rotate the secret."
        ) from None


def _cipher(key: str):  # type: ignore[no-untyped-def]
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ModuleNotFoundError:
        raise ConfigError("encryption_key needs the package cryptography: pip install 'holdfast[web]'") from None
    return AESGCM(hashlib.sha256(b"holdfast sealing\0" + key.encode()).digest())
