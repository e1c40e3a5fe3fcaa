"""JWTs: a signature made with the shared secret (HS256 only) or with one of the issuer's public keys (never HS256)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import jwt
import msgspec

from holdfast.errors import SignerUnavailable, Unauthenticated
from holdfast.settings import Settings

LEEWAY_SECONDS = 10.0
TOKEN_CHARS_MAX = 16_384
REFETCH_SECONDS = 30.0
"""A key nobody knows makes us ask for the keys again, but not more often than this."""
KEYS_LIFE_SECONDS = 600.0
"""After this they are asked for in any case, so that a key that was taken back stops working."""
FETCH_SECONDS_MAX = 5.0
KEY_SET_BYTES_MAX = 1_000_000
# Only asymmetric ones: with HS256 among them, whoever knows the public key could sign.
RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "Ed25519": "EdDSA", "Ed448": "EdDSA"}


class Claims(msgspec.Struct, frozen=True):
    """What a token says that was signed as it should be and is valid now."""

    subject: str | None
    role: str | None
    expires: float
    all: dict[str, Any]

    def at(self, path: str) -> Any:
        """`app_metadata.organization`: None where nothing is there."""
        found: Any = self.all
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found


class Tokens:
    """Reads tokens as the settings say."""

    def __init__(self, settings: Settings, client: httpx.AsyncClient | None = None) -> None:
        self._settings = settings
        self._key_set = KeySet(settings.jwks_url, client) if settings.jwks_url else None

    @property
    def accepted(self) -> bool:
        return self._settings.jwt_secret is not None or self._key_set is not None

    async def read(self, token: str) -> Claims:
        if not self.accepted:
            raise Unauthenticated(
                "Tokens are not accepted here; use an API key, or set HOLDFAST_JWT_SECRET or HOLDFAST_JWKS_URL."
            )
        if len(token) > TOKEN_CHARS_MAX:
            raise Unauthenticated("The token is too long to be one.")
        try:
            key, algorithms = await self._key_for(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=algorithms,
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp"], "verify_aud": self._settings.jwt_audience is not None},
            )
            return _claims(claims)
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired; get a new one.") from None
        except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
            # Not what the library says: it quotes what was sent.
            raise Unauthenticated("The token is not valid here.") from None

    async def _key_for(self, token: str) -> tuple[Any, list[str]]:
        if self._key_set is None:
            return self._settings.jwt_secret, ["HS256"]
        header = jwt.get_unverified_header(token)
        key = await self._key_set.key(header.get("kid"))
        if key is None:
            raise Unauthenticated("The token was signed with a key that its issuer does not publish.")
        return key.key, key.algorithms


class SigningKey(msgspec.Struct, frozen=True):
    key: Any
    algorithms: list[str]


class KeySet:
    """The issuer's public keys, which may change at any time."""

    def __init__(self, url: str, client: httpx.AsyncClient | None = None) -> None:
        self._url = url
        self._client = client
        self._keys: dict[str | None, SigningKey] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._lock = asyncio.Lock()

    async def key(self, kid: Any) -> SigningKey | None:
        wanted = kid if isinstance(kid, str) else None
        if wanted not in self._keys or self._older_than(self._fetched, KEYS_LIFE_SECONDS):
            async with self._lock:
                if wanted not in self._keys or self._older_than(self._fetched, KEYS_LIFE_SECONDS):
                    await self._fetch_if_due()
        return self._keys.get(wanted)

    async def _fetch_if_due(self) -> None:
        if not self._older_than(self._tried, REFETCH_SECONDS):
            if self._fetched is None:
                raise self._unavailable()
            return
        self._tried = time.monotonic()
        try:
            self._keys = usable_keys(await self._fetch())
        except (httpx.HTTPError, TimeoutError, ValueError, jwt.PyJWTError):
            # The issuer is away: the keys that were known go on to hold.
            if self._fetched is None:
                raise self._unavailable() from None
            return
        self._fetched = self._tried

    async def _fetch(self) -> Any:
        if self._client is not None:
            return await self._read_from(self._client)
        async with httpx.AsyncClient(timeout=FETCH_SECONDS_MAX) as client:
            return await self._read_from(client)

    async def _read_from(self, client: httpx.AsyncClient) -> Any:
        async with asyncio.timeout(FETCH_SECONDS_MAX), client.stream("GET", self._url) as response:
            response.raise_for_status()
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > KEY_SET_BYTES_MAX:
                    raise ValueError("the key set is too large")
        return msgspec.json.decode(body)

    def _older_than(self, moment: float | None, seconds: float) -> bool:
        return moment is None or time.monotonic() - moment >= seconds

    def _unavailable(self) -> SignerUnavailable:
        return SignerUnavailable(
            "The keys that sign tokens cannot be fetched right now; try again, and check HOLDFAST_JWKS_URL."
        )


def usable_keys(document: Any) -> dict[str | None, SigningKey]:
    """By key id. A key that is not for signatures, or of a kind that is not asymmetric, is passed over."""
    found: dict[str | None, SigningKey] = {}
    listed = document.get("keys") if isinstance(document, dict) else None
    for entry in listed if isinstance(listed, list) else []:
        key = _usable(entry) if isinstance(entry, dict) else None
        if key is not None:
            kid = entry.get("kid")
            found[kid if isinstance(kid, str) else None] = key
    return found


def _usable(entry: dict[str, Any]) -> SigningKey | None:
    algorithms = RSA if entry.get("kty") == "RSA" else (CURVES.get(str(entry.get("crv")), ""),)
    named = entry.get("alg")
    allowed = [name for name in algorithms if name and named in (None, name)]
    if entry.get("use", "sig") != "sig" or not allowed:
        return None
    try:
        return SigningKey(jwt.PyJWK(entry, algorithm=allowed[0]).key, allowed)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None


def _claims(claims: dict[str, Any]) -> Claims:
    subject, role = claims.get("sub"), claims.get("role")
    return Claims(
        subject=subject if isinstance(subject, str) and subject else None,
        role=role if isinstance(role, str) else None,
        expires=float(claims["exp"]),
        all=claims,
    )
