"""Tokens at rest: sealed with a key that is not in the database, and of no use for any other row than their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from holdfast import sealing
from holdfast.errors import SealedUnreadable
from holdfast.extraction.errors import TokenUnreadable

VARIABLE = "HOLDFAST_ENCRYPTION_KEYS"


class Vault(sealing.Vault):
    """Put a new key in front, `reseal`, then take the old one away."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        super().__init__(keys, VARIABLE)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Vault | None:
        """None: no key is set, and no token can be stored."""
        keys = sealing.keys_of(environment.get(VARIABLE, ""), VARIABLE)
        return cls(keys) if keys else None

    def open(self, sealed: str, *, bound_to: str) -> str:
        """TokenUnreadable where the key is gone, the text was changed, or it was sealed for something else."""
        try:
            return super().open(sealed, bound_to=bound_to)
        except SealedUnreadable as error:
            raise TokenUnreadable(f"The stored token cannot be read: {error} Store it again.") from error
