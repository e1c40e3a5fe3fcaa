"""Signatures of webhooks: ours follow Standard Webhooks; those of GitHub and of Stripe's kind are checked too. Pure.

A message is signed as `id.timestamp.body` with HMAC-SHA256 under a secret that is written `whsec_` and base64.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from holdfast.errors import ConfigError, SignatureInvalid

PREFIX = "whsec_"
SECRET_BYTES = 32
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
TOLERANCE_SECONDS = 300.0
SIGNATURES_MAX = 20
"""More in one header are not looked at."""
Scheme = Literal["standard", "github", "stripe"]
_DIGITS = re.compile(r"[0-9]{1,12}")


class Verified(NamedTuple):
    """What a signature vouches for, and what the headers say besides."""

    delivery: str | None
    """The sender's own id of this message; the same when he sends it again."""
    type: str | None


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes behind `whsec_…`; ValueError if there are none, too few or too many."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(f"{PREFIX} and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64")
    return key


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(_digest(key_of(secret), signed)).decode()


def headers_of(signing: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """What goes with a message. While a secret is being rotated there are two signatures, and either one will do."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signature(secret, message_id, timestamp, body) for secret in signing),
    }


def verify(
    scheme: Scheme, accepted: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance: float
) -> Verified:
    """SignatureInvalid unless one of the accepted secrets signed this; headers are looked up in lower case."""
    return _SCHEMES[scheme](accepted, headers, body, now, tolerance)


def check_secret(scheme: Scheme, secret: object) -> str:
    """A secret as this scheme takes it; ConfigError, which does not show it, where it cannot be one."""
    if not isinstance(secret, str) or len(secret) < 8:
        raise ConfigError("A webhook's secret must be text of 8 characters or more.")
    if scheme == "standard":
        try:
            key_of(secret)
        except ValueError as wrong:
            raise ConfigError(f"A webhook's secret must be {wrong}.") from None
    return secret


def _standard(accepted: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance: float) -> Verified:
    message_id = _header(headers, "webhook-id")
    timestamp = _moment(_header(headers, "webhook-timestamp"), now, tolerance)
    parts = [part.partition(",") for part in _header(headers, "webhook-signature").split()[:SIGNATURES_MAX]]
    given = [_from_base64(value) for version, _, value in parts if version == "v1"]
    signed = f"{message_id}.{timestamp}.".encode() + body
    _require_one(given, [_digest(key_of(secret), signed) for secret in accepted])
    return Verified(message_id, None)


def _github(accepted: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance: float) -> Verified:
    """GitHub signs the body alone: neither the time nor the id of the delivery."""
    kind, _, value = _header(headers, "x-hub-signature-256").partition("=")
    given = [_from_hex(value)] if kind == "sha256" else []
    _require_one(given, [_digest(secret.encode(), body) for secret in accepted])
    return Verified(headers.get("x-github-delivery"), headers.get("x-github-event"))


def _stripe(accepted: Sequence[str], headers: Mapping[str, str], body: bytes, now: float, tolerance: float) -> Verified:
    parts = [part.strip().partition("=") for part in _header(headers, "stripe-signature").split(",")[: SIGNATURES_MAX + 1]]
    timestamp = _moment(next((value for name, _, value in parts if name == "t"), ""), now, tolerance)
    given = [_from_hex(value) for name, _, value in parts if name == "v1"]
    signed = f"{timestamp}.".encode() + body
    _require_one(given, [_digest(secret.encode(), signed) for secret in accepted])
    return Verified(None, None)  # its id and type stand in the body


_SCHEMES: dict[str, Callable[[Sequence[str], Mapping[str, str], bytes, float, float], Verified]] = {
    "standard": _standard,
    "github": _github,
    "stripe": _stripe,
}


def _digest(key: bytes, signed: bytes) -> bytes:
    return hmac.new(key, signed, hashlib.sha256).digest()


def _require_one(given: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """Every pair is compared, each in constant time."""
    if not any([hmac.compare_digest(one, right) for one in given for right in expected]):
        raise SignatureInvalid("The signature does not match: check the secret, and that the body is sent on unchanged.")


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value:
        raise SignatureInvalid(f"The header {name} is missing: this takes signed webhooks only.")
    return value


def _moment(text: str, now: float, tolerance: float) -> int:
    if not _DIGITS.fullmatch(text):
        raise SignatureInvalid("The timestamp of this webhook is no number of seconds.")
    if abs(now - int(text)) > tolerance:
        raise SignatureInvalid(f"This webhook was signed more than {tolerance:g} s from now; check both clocks.")
    return int(text)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""
