"""How an organization's code is reached: a sealed token, or an installation of the GitHub App. No token is ever shown."""

from __future__ import annotations

import logging
import re
import uuid
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from holdfast import Holdfast
from holdfast.errors import Conflict, InvalidOption, NotFound
from holdfast.extraction.context import Credentials
from holdfast.extraction.errors import TokenUnreadable
from holdfast.extraction.github_app import GitHubApp
from holdfast.extraction.repositories import Repository, host_of
from holdfast.extraction.sealing import VARIABLE, Vault
from holdfast.extraction.sql import Statements
from holdfast.pipeline import StepFailed

log = logging.getLogger("holdfast.extraction")

Provider = Literal["github", "gitlab", "bitbucket", "git"]
HOSTS = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org"}
USERS = {"github": "x-access-token", "gitlab": "oauth2", "bitbucket": "x-token-auth", "git": "git"}
SHOWN = {"github": "GitHub", "gitlab": "GitLab", "bitbucket": "Bitbucket"}
TOKEN_CHARS_MAX = 4096
NAME_CHARS_MAX = 200
RESEALED_AT_ONCE = 100
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?(:\d{1,5})?")
_NUMBER = re.compile(r"[0-9]{1,20}")


class Integration(msgspec.Struct, kw_only=True, frozen=True):
    id: str
    tenant: str
    provider: Provider
    host: str
    """The token is sent to no other."""
    name: str
    user_name: str | None
    installation_id: str | None
    has_token: bool
    created_at: datetime
    created_by: str | None
    token_set_at: datetime | None

    @property
    def shown_provider(self) -> str:
        return SHOWN.get(self.provider, self.host)


class Integrations:
    """`extraction.integrations`: each verb names the organization, and finds nothing of any other."""

    def __init__(self, hf: Holdfast, vault: Vault | None, github: GitHubApp | None) -> None:
        self._hf = hf
        self._vault = vault
        self._github = github

    @property
    def can_seal(self) -> bool:
        """Whether tokens can be stored here."""
        return self._vault is not None

    async def create(
        self,
        tenant: str,
        provider: Provider,
        *,
        token: str | None = None,
        installation_id: str | None = None,
        host: str | None = None,
        user_name: str | None = None,
        name: str = "",
        by: str | None = None,
    ) -> Integration:
        """With a token, or with the number of an installation, whose owner the caller has to know: see the guide."""
        host = _checked(provider, host, token, installation_id, user_name, name)
        made = uuid.uuid4().hex
        sealed = None if token is None else self._seal(tenant, made, host, token)
        async with self._hf.transaction() as tx:
            ask = Statements(self._hf, tx)
            rows = await ask("integration_insert", tenant, made, provider, host, name, user_name, installation_id, sealed, by)
            if rows:
                await ask.note(tenant, "integration.added", by, integration=made, host=host, name=name)
        if not rows:
            raise Conflict(
                f"The installation {installation_id} is connected already; remove that one first.", "installation_taken"
            )
        return _public(rows[0])

    async def list(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> list[Integration]:
        """By id; `cursor` is that of the last one seen."""
        async with self._hf.transaction() as tx:
            return [_public(row) for row in await Statements(self._hf, tx)("integration_list", tenant, cursor, limit)]

    async def get(self, tenant: str, integration_id: str) -> Integration:
        async with self._hf.transaction() as tx:
            return _public(_one(await Statements(self._hf, tx)("integration_get", tenant, integration_id), tenant))

    async def set_token(self, tenant: str, integration_id: str, token: str, *, by: str | None = None) -> Integration:
        """The next run uses it."""
        _check_token(token)
        async with self._hf.transaction() as tx:
            ask = Statements(self._hf, tx)
            found = _one(await ask("integration_lock", tenant, integration_id), tenant)
            if found["installation_id"] is not None:
                raise Conflict("An installation has no token of its own; one is made for each run.", "integration_has_no_token")
            sealed = self._seal(tenant, integration_id, found["host"], token)
            await ask.note(tenant, "integration.token_replaced", by, integration=integration_id, host=found["host"])
            return _public((await ask("integration_set_token", tenant, integration_id, sealed))[0])

    async def remove(self, tenant: str, integration_id: str, *, by: str | None = None) -> None:
        async with self._hf.transaction() as tx:
            ask = Statements(self._hf, tx)
            found = _one(await ask("integration_lock", tenant, integration_id), tenant)
            users = [row["project"] for row in await ask("integration_users", tenant, integration_id)]
            if users:
                used = ", ".join(users)
                raise Conflict(f"The integration is used by {used}; connect them otherwise first.", "integration_in_use")
            await ask("integration_delete", tenant, integration_id)
            await ask.note(tenant, "integration.removed", by, integration=integration_id, host=found["host"])

    async def reseal(self) -> int:
        """Everything that an older key sealed, with the newest; then the older key may go. How many were done."""
        vault, done, after = self._needed_vault(), 0, ("", "")
        while True:
            async with self._hf.transaction() as tx:
                ask = Statements(self._hf, tx)
                rows = await ask("integration_sealed", *after, RESEALED_AT_ONCE)
                for row in rows:
                    bound_to, sealed = _bound_to(row["tenant"], row["id"], row["host"]), row["sealed_token"]
                    if not vault.is_newest(sealed):
                        again = vault.seal(vault.open(sealed, bound_to=bound_to), bound_to=bound_to)
                        done += len(await ask("integration_reseal", row["tenant"], row["id"], again, sealed))
            if len(rows) < RESEALED_AT_ONCE:
                return done
            after = (rows[-1]["tenant"], rows[-1]["id"])

    async def credentials_for(self, repository: Repository) -> Credentials | None:
        """For one run of this repository: opened, or minted. None: it is public."""
        if repository.integration_id is None:
            return None
        async with self._hf.transaction() as tx:
            rows = await Statements(self._hf, tx)("integration_get", repository.tenant, repository.integration_id)
        found = _public(rows[0]) if rows else None
        if found is None or host_of(repository.source) != found.host:
            raise StepFailed(_reconnect(repository.provider), code="auth_failed")
        if found.installation_id is not None:
            return await self._minted(found, repository)
        return self._opened(found, rows[0]["sealed_token"])

    async def _minted(self, integration: Integration, repository: Repository) -> Credentials:
        if self._github is None:
            log.error("GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY are not set on this worker; private repositories stay closed")
            raise StepFailed(_reconnect("GitHub"), code="auth_failed")
        name = urlsplit(repository.source).path.rstrip("/").rpartition("/")[2].removesuffix(".git")
        return Credentials(await self._github.token(integration.installation_id or "", name), USERS["github"])

    def _opened(self, integration: Integration, sealed: str) -> Credentials:
        try:
            bound_to = _bound_to(integration.tenant, integration.id, integration.host)
            token = self._needed_vault().open(sealed, bound_to=bound_to)
        except (TokenUnreadable, Conflict) as error:
            log.error("The token of integration %s cannot be opened: %s", integration.id, error)
            raise StepFailed(_reconnect(integration.shown_provider), code="auth_failed") from error
        return Credentials(token, integration.user_name or USERS[integration.provider])

    def _seal(self, tenant: str, integration_id: str, host: str, token: str) -> str:
        return self._needed_vault().seal(token, bound_to=_bound_to(tenant, integration_id, host))

    def _needed_vault(self) -> Vault:
        if self._vault is None:
            raise Conflict(
                f"No token can be stored here: whoever runs this server has to set {VARIABLE}.", "sealing_key_missing"
            )
        return self._vault


def _checked(
    provider: str, host: str | None, token: str | None, installation_id: str | None, user_name: str | None, name: str
) -> str:
    if provider not in USERS:
        raise InvalidOption(f"provider must be one of {', '.join(USERS)}.")
    if (token is None) == (installation_id is None):
        raise InvalidOption("An integration has a token or an installation_id: give one of them.")
    if token is not None:
        _check_token(token)
    if installation_id is not None and (provider != "github" or not _NUMBER.fullmatch(installation_id)):
        raise InvalidOption("installation_id is a number that GitHub gave, and only github has it.")
    for word, text in (("name", name), ("user_name", user_name or "")):
        if len(text) > NAME_CHARS_MAX or not text.isprintable() or (word == "user_name" and ":" in text):
            raise InvalidOption(f"{word} must be at most {NAME_CHARS_MAX} characters that can be printed.")
    host = (host or HOSTS.get(provider, "")).lower().removesuffix(":443")
    if not _HOST.fullmatch(host):
        raise InvalidOption("host must be a host name such as gitlab.example.com, with a port where it is not 443.")
    return host


def _check_token(token: str) -> None:
    if not token or len(token) > TOKEN_CHARS_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidOption(f"token must be at most {TOKEN_CHARS_MAX} characters of ASCII without spaces.")


def _one(found: list[dict[str, Any]], tenant: str) -> dict[str, Any]:
    if not found:
        raise NotFound(f"{tenant} has no such integration.")
    return found[0]


def _public(row: dict[str, Any]) -> Integration:
    return msgspec.convert({**row, "has_token": row["sealed_token"] is not None}, Integration)


def _bound_to(tenant: str, integration_id: str, host: str) -> str:
    return "\0".join([tenant, integration_id, host])


def _reconnect(provider: str) -> str:
    if provider == "GitHub":
        return "Authentication failed - your GitHub App installation may need to be reconnected"
    return f"Authentication failed - reconnect your {provider} integration in Organization Settings"
