"""Who calls: the host's own login, an API key, a token, or the cookie of a browser's session, in this order."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from starlette.requests import HTTPConnection

from holdfast.app import Holdfast
from holdfast.errors import ConfigError, Forbidden, Unauthenticated
from holdfast.people.keys import ValidKey, looks_like_a_key
from holdfast.people.sessions import Session, Sessions
from holdfast.roles import MEMBER_ROLES
from holdfast.web import cookies
from holdfast.web.access import Caller, Proof, Role
from holdfast.web.tokens import LEEWAY_SECONDS, Claims, Tokens

TENANT_HEADER = "X-Holdfast-Tenant"
SERVICE_ROLE_CLAIM = "service_role"
TENANT_CHARS_MAX = 200

Authenticate = Callable[[Any], "Caller | Awaitable[Caller | None] | None"]
"""The host's own login: takes the request, answers who calls, or None to leave it to Holdfast."""

Throttle = Callable[[Callable[[], Awaitable[Caller]], str], Awaitable[Caller]]
"""Takes a check and the credential that it is about."""


class Authenticator:
    def __init__(
        self, hf: Holdfast, authenticate: Authenticate | None = None, *, client: httpx.AsyncClient | None = None
    ) -> None:
        self._hf = hf
        self._authenticate = authenticate
        self._tokens = Tokens(hf.settings, client)
        self._sessions = Sessions(hf)

    # -- who calls -----------------------------------------------------------------------------------------------------

    async def caller_of(self, request: HTTPConnection, throttled: Throttle | None = None) -> Caller:
        """Raises Unauthenticated (401), or Forbidden (403) for a known caller who may not be here.

        `throttled` gets each check of a credential of ours. The host's login comes before it, and throttles by itself.
        """
        caller = await self._by_host(request)
        if caller is not None:
            return caller
        throttled = throttled or _at_once
        token, secret = _bearer_token(request), cookies.session_secret(request)
        if token is not None:
            return await throttled(lambda: self._by_bearer(request, token), token)
        if secret is not None:
            cookies.require_own_page(request)
            return await throttled(lambda: self._by_session(secret), secret)
        raise Unauthenticated("Missing credentials. Send an API key or a token in the header `Authorization: Bearer <key>`.")

    async def still(self, caller: Caller, request: HTTPConnection | None = None) -> bool:
        """Whether he may still have what he was given when his stream opened. The host's login is asked with a request only."""
        if caller.expires is not None and time.time() > caller.expires + LEEWAY_SECONDS:
            return False
        now: Caller | ValidKey | Session | None = caller
        if caller.proof is Proof.KEY:
            now = await self._hf.keys.still_valid(str(caller.key_id))
        elif caller.proof is Proof.SESSION:
            now = await self._sessions.still_valid(str(caller.session_id))
        elif caller.proof is Proof.MEMBER:
            roles = await self._hf.members.roles_of(str(caller.user_id))
            return roles.get(str(caller.tenant), 0) >= caller.role
        elif caller.proof is Proof.HOST and request is not None:
            now = await self._by_host(request)
        return now is not None and now.tenant == caller.tenant and now.role >= caller.role

    async def _by_host(self, request: HTTPConnection) -> Caller | None:
        if self._authenticate is None:
            return None
        caller = self._authenticate(request)
        if inspect.isawaitable(caller):
            caller = await caller
        if caller is not None and not isinstance(caller, Caller):
            raise TypeError(f"authenticate= must answer a Caller or None, not {type(caller).__name__}")
        if caller is not None:  # by a cookie, Basic or a client certificate: a browser adds each of them by itself
            cookies.refuse_other_sites(request)
        return caller

    async def _by_bearer(self, request: HTTPConnection, token: str) -> Caller:
        if not looks_like_a_key(token):
            return await self._by_claims(request, await self._tokens.read(token))
        key = await self._hf.keys.valid(token)
        if key is None:
            raise Unauthenticated("This API key is not known, has expired or was revoked.")
        _refuse_other_tenant(request, key.tenant)
        return _key_caller(key)

    async def _by_session(self, secret: str) -> Caller:
        session = await self._sessions.valid(secret)
        if session is None:
            raise Unauthenticated("The session has ended; log in again.")
        return _session_caller(session)

    async def _by_claims(self, request: HTTPConnection, claims: Claims) -> Caller:
        settings = self._hf.settings
        if claims.role == SERVICE_ROLE_CLAIM:
            if not settings.jwt_service_role:
                raise Unauthenticated(
                    "Tokens of the service role are not accepted here; HOLDFAST_JWT_SERVICE_ROLE allows them."
                )
            return Caller(None, Role.SERVICE, "token:service_role", proof=Proof.TOKEN, expires=claims.expires)
        user = claims.subject
        actor = f"user:{user}"
        if user is None or not _storable(actor):  # cut off, two users could become one
            raise Unauthenticated("The token does not say whose it is.")
        if settings.jwt_tenant_claim is None or settings.jwt_role_claim is None:
            tenant, role = await self._membership(request, user)
            return Caller(tenant, role, actor, user_id=user, proof=Proof.MEMBER, expires=claims.expires)
        tenant, word = claims.at(settings.jwt_tenant_claim), claims.at(settings.jwt_role_claim)
        claimed = MEMBER_ROLES.get(word) if isinstance(word, str) else None
        if not isinstance(tenant, str) or not _storable(tenant) or claimed is None:
            raise Forbidden("The token names no organization and role.")
        _refuse_other_tenant(request, tenant)
        return Caller(tenant, claimed, actor, user_id=user, proof=Proof.TOKEN, expires=claims.expires)

    async def _membership(self, request: HTTPConnection, user: str) -> tuple[str, Role]:
        roles = await self._hf.members.roles_of(user)
        asked = request.headers.get(TENANT_HEADER)
        if asked is None:
            if not roles:
                raise Forbidden("This user is a member of no organization; an owner can add him.")
            if len(roles) > 1:
                raise Forbidden(f"This user is a member of several organizations; name one in the header {TENANT_HEADER}.")
            return next(iter(roles.items()))
        if asked not in roles:
            raise Forbidden("This user is no member of the organization that he names.")
        return asked, roles[asked]

    # -- browsers ------------------------------------------------------------------------------------------------------

    async def begin_session(self, key_secret: str) -> tuple[str, Caller]:
        """A new session's secret for the holder of a key."""
        key = await self._hf.keys.valid(key_secret)
        if key is None:
            raise Unauthenticated("This API key is not known, has expired or was revoked.")
        return await self._begun(
            await self._sessions.begin(tenant=key.tenant, role=key.role, actor=f"key:{key.id}", key_id=key.id)
        )

    async def begin_session_by_link(self, token: str) -> tuple[str, Caller]:
        secret = await self._sessions.begin_by_link(token)
        if secret is None:
            raise Unauthenticated("This login link was used already, or is too old; ask for a new one.")
        return await self._begun(secret)

    async def _begun(self, secret: str) -> tuple[str, Caller]:
        session = await self._sessions.valid(secret)
        if session is None:
            raise Unauthenticated("The key was revoked while it was shown.")
        return secret, _session_caller(session)

    async def end_session(self, secret: str) -> None:
        await self._sessions.end(secret)

    async def one_time_link(self, base_url: str, *, tenant: str | None = None, role: Role = Role.SERVICE) -> str:
        """An address that logs one browser in, once and within ten minutes: for `holdfast dev`."""
        token = await self._sessions.make_link(tenant=tenant, role=role, actor="dev")
        # Behind the #: a browser keeps it to itself, so that it is in no server's log.
        return f"{base_url.rstrip('/')}/login#{token}"

    # -- the door itself -----------------------------------------------------------------------------------------------

    async def require_some_way_in(self, host: str, dev: bool = False) -> None:
        """Closed by default: a server that nobody could log in to is a mistake, and not one to mend by opening it."""
        if not (dev and cookies.is_loopback(host)) and not await self.has_some_way_in():
            raise ConfigError(
                "Nobody could log in to this server: make a key with `holdfast keys create --tenant acme --role admin` "
                "(or `--service`), set HOLDFAST_JWT_SECRET or HOLDFAST_JWKS_URL, or pass authenticate= to hf.asgi()."
            )

    async def has_some_way_in(self) -> bool:
        return self._authenticate is not None or self._tokens.accepted or await self._hf.keys.any_valid()


async def _at_once(check: Callable[[], Awaitable[Caller]], _credential: str) -> Caller:
    return await check()


def _bearer_token(request: HTTPConnection) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _key_caller(key: ValidKey) -> Caller:
    return Caller(key.tenant, key.role, f"key:{key.id}", key_id=key.id, proof=Proof.KEY)


def _session_caller(session: Session) -> Caller:
    return Caller(
        session.tenant, session.role, session.actor, key_id=session.key_id, proof=Proof.SESSION, session_id=session.id
    )


def _refuse_other_tenant(request: HTTPConnection, tenant: str | None) -> None:
    asked = request.headers.get(TENANT_HEADER)
    if asked is not None and tenant is not None and asked != tenant:
        raise Forbidden(f"The header {TENANT_HEADER} names another organization than this caller's.")


def _storable(text: str) -> bool:
    return 0 < len(text) <= TENANT_CHARS_MAX and "\0" not in text and text.isprintable()
