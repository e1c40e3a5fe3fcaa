"""Values at rest: sealed with a key that is not in the database, and of no use in any other place than their own.

Arguments, results and results of steps are stored as `{"$sealed": "KEY NAME:BASE64"}` where `HOLDFAST_ENCRYPTION_KEYS` is
set, each bound to its job. Without keys nothing here is called but one look at an empty tuple.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import ConfigError, SealedUnreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
RIGHT = f"one or more keys of {KEY_BYTES} bytes in base64, the newest first, for example from `openssl rand -base64 32`"
MARK = "$sealed"
SHOWN = "sealed"
_BEGINNING = f'{{"{MARK}"'


class Vault:
    """AES-256-GCM. The first key seals, all of them open: put a new one in front, and take the old one away in time."""

    def __init__(self, keys: Sequence[bytes], variable: str = "HOLDFAST_ENCRYPTION_KEYS") -> None:
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ConfigError(f"{variable} cannot be used; it takes {RIGHT}.")
        self._keys = {_name_of(key): key for key in keys}
        self._newest = _name_of(keys[0])
        self._variable = variable

    def seal(self, text: str, *, bound_to: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = _cipher(self._keys[self._newest]).encrypt(nonce, text.encode(), bound_to.encode())
        return f"{self._newest}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str, *, bound_to: str) -> str:
        """SealedUnreadable where the key is gone, the text was changed, or it was sealed for something else."""
        from cryptography.exceptions import InvalidTag

        name, _, text = sealed.partition(":")
        key = self._keys.get(name)
        if key is None:
            raise SealedUnreadable(f"It was sealed with the key {name:.8}, which {self._variable} does not hold here.")
        try:
            data = base64.b64decode(text, validate=True)
            if base64.b64encode(data).decode() != text:  # the last letter may have bits that say nothing
                raise ValueError(text)
            return _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to.encode()).decode()
        except (InvalidTag, ValueError) as error:
            raise SealedUnreadable("It was changed in the database, or belongs to something else.") from error

    def is_newest(self, sealed: str) -> bool:
        return sealed.startswith(f"{self._newest}:")

    def knows(self, sealed: str) -> bool:
        return sealed.partition(":")[0] in self._keys


def keys_of(words: str, variable: str) -> tuple[bytes, ...]:
    """Separated by spaces or commas, in both alphabets of base64; what is wrong is never quoted."""
    try:
        keys = tuple(
            base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)
            for word in words.replace(",", " ").split()
        )
    except (binascii.Error, ValueError):
        raise ConfigError(f"{variable} cannot be used; it takes {RIGHT}.") from None
    if any(len(key) != KEY_BYTES for key in keys):
        raise ConfigError(f"{variable} cannot be used; it takes {RIGHT}.")
    return keys


def checked_keys(label: str, value: Any) -> tuple[bytes, ...]:
    """As a setting gives them: text, or a list of texts."""
    words = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str) for one in words):
        raise ConfigError(f"{label} cannot be used; it takes {RIGHT}.")
    return keys_of(" ".join(words), label)


@functools.lru_cache(maxsize=8)
def vault_of(keys: tuple[bytes, ...]) -> Vault:
    return Vault(keys)


def seal_json(keys: tuple[bytes, ...], data: str, bound_to: str) -> str:
    return msgspec.json.encode({MARK: vault_of(keys).seal(data, bound_to=bound_to)}).decode() if keys else data


def is_sealed(data: str | bytes) -> bool:
    return data.startswith(_BEGINNING) if isinstance(data, str) else data.startswith(_BEGINNING.encode())


def open_json(keys: tuple[bytes, ...], data: str | bytes, bound_to: str) -> str | bytes:
    """As it is where it is not sealed: what was stored before keys were set stays readable."""
    if not is_sealed(data):
        return data
    return _opened(keys, msgspec.json.decode(data)[MARK], bound_to)


def open_value(keys: tuple[bytes, ...], value: Any, bound_to: str) -> Any:
    """The same for JSON that was read already."""
    sealed = sealed_text(value)
    return value if sealed is None else msgspec.json.decode(_opened(keys, sealed, bound_to))


def sealed_text(value: Any) -> str | None:
    sealed = value.get(MARK) if isinstance(value, dict) and len(value) == 1 else None
    return sealed if isinstance(sealed, str) else None


def shown(value: Any) -> Any:
    """For people: that there is something, not what it looks like."""
    return value if sealed_text(value) is None else SHOWN


def _opened(keys: tuple[bytes, ...], sealed: str, bound_to: str) -> str:
    if not keys:
        raise SealedUnreadable("It is sealed, and HOLDFAST_ENCRYPTION_KEYS is not set here; set it as where it was enqueued.")
    return vault_of(keys).open(sealed, bound_to=bound_to)


def _cipher(key: bytes) -> AESGCM:
    """Imported late: only who seals needs it."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError("Sealing needs the package cryptography: pip install 'holdfast[encryption]'") from None
    return AESGCM(key)


def _name_of(key: bytes) -> str:
    return hashlib.sha256(b"holdfast key name" + key).hexdigest()[:8]
