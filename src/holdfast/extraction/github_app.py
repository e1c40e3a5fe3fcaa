"""A GitHub App's installation token: minted for one run and one repository, read-only, and never stored."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from holdfast.errors import ConfigError
from holdfast.pipeline import StepFailed

if TYPE_CHECKING:
    import httpx

API = "https://api.github.com"
TIMEOUT_SECONDS = 20.0
ANSWER_BYTES_MAX = 65_536
PROOF_SECONDS = 540
"""GitHub takes at most ten minutes."""
CLOCK_SECONDS = 60
"""By so much our clock may be ahead of theirs."""
RECONNECT = "Authentication failed - your GitHub App installation may need to be reconnected"
UNREACHABLE = "Repository host unreachable - try again later"


class _Minted(msgspec.Struct):
    token: str


class GitHubApp:
    """`GITHUB_APP_ID` and `GITHUB_APP_PRIVATE_KEY` of whoever runs this installation of Holdfast."""

    def __init__(self, app_id: str, private_key: str, *, api: str = API) -> None:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        self.api = api.rstrip("/")
        self._app_id = app_id
        self._key = private_key.replace("\\n", "\n").strip()  # one line is all that some places allow
        try:
            load_pem_private_key(self._key.encode(), None)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                "GITHUB_APP_PRIVATE_KEY cannot be used; it takes the PEM text that GitHub let you download, without a password."
            ) from error

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> GitHubApp | None:
        app_id, key = environment.get("GITHUB_APP_ID", ""), environment.get("GITHUB_APP_PRIVATE_KEY", "")
        if not app_id and not key:
            return None
        if not app_id or not key:
            raise ConfigError("GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY belong together; set both, or none.")
        return cls(app_id, key, api=environment.get("HOLDFAST_GITHUB_API", API))

    async def token(self, installation_id: str, repository: str) -> str:
        """For this repository alone (its name without the owner). StepFailed says what a user can do."""
        import httpx

        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS) as client:
                status, headers, body = await self._ask(client, installation_id, repository)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise StepFailed(UNREACHABLE, code="host_unreachable") from error
        return _token_of(status, headers, body)

    async def _ask(
        self, client: httpx.AsyncClient, installation_id: str, repository: str
    ) -> tuple[int, Mapping[str, str], bytes]:
        address = f"{self.api}/app/installations/{installation_id}/access_tokens"
        wanted = {"repositories": [repository], "permissions": {"contents": "read"}}
        headers = {
            "Authorization": f"Bearer {self._proof()}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        # One deadline for all of it: a server that sends a byte now and then would outlast any other.
        async with asyncio.timeout(TIMEOUT_SECONDS), client.stream("POST", address, json=wanted, headers=headers) as answer:
            body = b""
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    break
            return answer.status_code, answer.headers, body

    def _proof(self) -> str:
        import jwt

        now = int(time.time())
        claims = {"iat": now - CLOCK_SECONDS, "exp": now + PROOF_SECONDS, "iss": self._app_id}
        return jwt.encode(claims, self._key, algorithm="RS256")


def _token_of(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if status == 429 or (status == 403 and (headers.get("x-ratelimit-remaining") == "0" or "retry-after" in headers)):
        raise StepFailed("GitHub rate limit reached - wait 15 minutes and retry", code="rate_limited")
    if status == 422:  # the installation is there, and this repository is not among those it was given
        raise StepFailed("Repository not found - it may have been deleted or made private", code="repository_not_found")
    if status in (401, 403, 404, 410):
        raise StepFailed(RECONNECT, code="auth_failed")
    try:
        token = msgspec.json.decode(body, type=_Minted).token if status == 201 else ""
    except (msgspec.MsgspecError, UnicodeDecodeError):
        token = ""
    if not token or not token.isascii() or not token.isprintable():
        raise StepFailed(UNREACHABLE, code="host_unreachable")
    return token
