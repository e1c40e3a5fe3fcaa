"""Tokens at rest: sealed with a key that is not in the database, and of no use for any other row than their own."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError
from holdfast.extraction.errors import TokenUnreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "HOLDFAST_SECRET_KEYS"
KEY_BYTES = 32
NONCE_BYTES = 12
_RIGHT = f"one or more keys of {KEY_BYTES} bytes in base64, the newest first, for example from `openssl rand -base64 32`"


class Vault:
    """AES-256-GCM. The first key seals, all of them open: put a new one in front, `reseal`, then take the old one away."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ConfigError(f"{VARIABLE} cannot be used; it takes {_RIGHT}.")
        self._keys = {_name_of(key): key for key in keys}
        self._newest = _name_of(keys[0])

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Vault | None:
        """None: no key is set, and no token can be stored."""
        words = environment.get(VARIABLE, "").replace(",", " ").split()
        return cls([_key_of(word) for word in words]) if words else None

    def seal(self, text: str, *, bound_to: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = _cipher(self._keys[self._newest]).encrypt(nonce, text.encode(), bound_to.encode())
        return f"{self._newest}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str, *, bound_to: str) -> str:
        """TokenUnreadable where the key is gone, the text was changed, or it was sealed for something else."""
        from cryptography.exceptions import InvalidTag

        name, _, text = sealed.partition(":")
        key = self._keys.get(name)
        if key is None:
            raise TokenUnreadable(f"The token was sealed with the key {name:.8}, which {VARIABLE} does not hold any more.")
        try:
            data = base64.b64decode(text, validate=True)
            return _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise TokenUnreadable("The stored token was changed, or belongs to something else; store it again.") from error

    def is_newest(self, sealed: str) -> bool:
        return sealed.startswith(f"{self._newest}:")


def _cipher(key: bytes) -> AESGCM:
    """Imported late: only who stores tokens needs it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _key_of(word: str) -> bytes:
    """Both alphabets of base64; what is wrong is never quoted."""
    try:
        return base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{VARIABLE} cannot be used; it takes {_RIGHT}.") from None


def _name_of(key: bytes) -> str:
    return hashlib.sha256(b"holdfast key name" + key).hexdigest()[:8]
