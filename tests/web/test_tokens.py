"""JWTs: a shared secret or published keys that rotate, Supabase's claims, members and claims that name them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.requests import Request

from holdfast import Holdfast
from holdfast.errors import ConfigError, Forbidden, SignerUnavailable, Unauthenticated
from holdfast.settings import load_settings
from holdfast.web import tokens
from holdfast.web.access import Caller, Proof, Role
from holdfast.web.auth import Authenticator
from holdfast.web.tokens import KeySet, Tokens, usable_keys

SECRET = "a-secret-that-is-long-enough-for-hs256"
JWKS = "https://id.example.com/keys"


def request_with(token: str, **headers: str) -> Request:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    named.append((b"authorization", f"Bearer {token}".encode()))
    return Request({"type": "http", "method": "GET", "path": "/", "headers": named, "query_string": b""})


def supabase(**changes: Any) -> dict[str, Any]:
    """What Supabase puts into the token of somebody who is logged in."""
    claims = {
        "aud": "authenticated",
        "exp": int(time.time()) + 3600,
        "iat": int(time.time()),
        "iss": "https://project.supabase.co/auth/v1",
        "sub": "9a1c1f8e-0000-4000-8000-000000000001",
        "email": "ana@example.com",
        "role": "authenticated",
        "aal": "aal1",
        "session_id": "e0a1",
        "is_anonymous": False,
        "app_metadata": {"provider": "email", "org": "acme", "org_role": "admin"},
        "user_metadata": {"org": "globex", "org_role": "owner"},
    }
    return {name: value for name, value in {**claims, **changes}.items() if value is not None}


def signed(claims: dict[str, Any], secret: str = SECRET, **more: Any) -> str:
    return jwt.encode(claims, secret, algorithm="HS256", **more)


@asynccontextmanager
async def authenticator(url: str, **settings: Any) -> AsyncIterator[tuple[Holdfast, Authenticator]]:
    hf = Holdfast(url, **{"jwt_secret": SECRET, **settings})
    yield hf, Authenticator(hf)
    await hf.aclose()


async def test_a_member_is_known_by_his_token(database_url: str) -> None:
    """Supabase's claims: `sub` is the user, our list says where he belongs and as what."""
    claims = supabase()
    async with authenticator(database_url, jwt_audience="authenticated", jwt_issuer=claims["iss"]) as (hf, auth):
        await hf.members.add("acme", claims["sub"], "member")
        caller = await auth.caller_of(request_with(signed(claims)))
    user = claims["sub"]
    expected = Caller("acme", Role.MEMBER, f"user:{user}", user_id=user, proof=Proof.MEMBER, expires=float(claims["exp"]))
    assert caller == expected


async def test_somebody_in_several_organizations_names_one(database_url: str) -> None:
    """By a header; without it, or with one where he is no member, he is refused."""
    claims = supabase()
    async with authenticator(database_url) as (hf, auth):
        token = signed(claims)
        with pytest.raises(Forbidden, match="no organization"):
            await auth.caller_of(request_with(token))
        await hf.members.add("acme", claims["sub"], "viewer")
        await hf.members.add("globex", claims["sub"], "owner")
        chosen = await auth.caller_of(request_with(token, x_holdfast_tenant="globex"))
        with pytest.raises(Forbidden, match="several"):
            await auth.caller_of(request_with(token))
        with pytest.raises(Forbidden, match="no member"):
            await auth.caller_of(request_with(token, x_holdfast_tenant="initech"))
    assert (chosen.tenant, chosen.role) == ("globex", Role.OWNER)


async def test_an_open_stream_ends_with_the_membership(database_url: str) -> None:
    """Also when the role becomes lower, and when the token has expired."""
    claims = supabase()
    async with authenticator(database_url) as (hf, auth):
        await hf.members.add("acme", "boss", "owner")
        await hf.members.add("acme", claims["sub"], "admin")
        caller = await auth.caller_of(request_with(signed(claims)))
        seen = [await auth.still(caller)]
        await hf.members.set_role("acme", claims["sub"], "viewer")
        seen.append(await auth.still(caller))
        await hf.members.set_role("acme", claims["sub"], "owner")
        seen.append(await auth.still(caller))
        await hf.members.remove("acme", claims["sub"])
        seen.append(await auth.still(caller))
        expired = Caller("acme", Role.OWNER, "user:boss", user_id="boss", proof=Proof.MEMBER, expires=time.time() - 60)
        seen.append(await auth.still(expired))
    assert seen == [True, False, True, False, False]


def hs512(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, SECRET * 2, algorithm="HS512")


def unsigned(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, algorithm="none")


def tampered(claims: dict[str, Any]) -> str:
    head, _, signature = signed(claims).split(".")
    body = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "boss"}).encode()).rstrip(b"=").decode()
    return f"{head}.{body}.{signature}"


@pytest.mark.parametrize(
    "make",
    [
        hs512,
        unsigned,
        tampered,
        lambda claims: signed(claims, "another-secret-that-is-long-enough-too"),
        lambda claims: signed({**claims, "exp": time.time() - 60}),
        lambda claims: signed({**claims, "nbf": time.time() + 60}),
        lambda claims: signed({name: value for name, value in claims.items() if name != "exp"}),
        lambda claims: signed({**claims, "aud": "elsewhere"}),
        lambda claims: signed({**claims, "iss": "https://elsewhere.example.com"}),
        lambda claims: signed({name: value for name, value in claims.items() if name != "aud"}),
        lambda claims: signed({name: value for name, value in claims.items() if name != "sub"}),
        lambda claims: signed({**claims, "sub": "x" * 300}),
        lambda claims: signed(claims)[:-1],
        lambda claims: "a.b.c",
        lambda claims: "x" * 20_000,
        lambda claims: signed({**claims, "exp": float("inf")}),
    ],
)
async def test_a_token_that_does_not_hold_is_refused(sqlite_url: str, make: Callable[[dict[str, Any]], str]) -> None:
    """Another algorithm, none at all, another secret, changed, expired, too early, for somebody else, without an owner."""
    claims = supabase()
    settings = {"jwt_audience": "authenticated", "jwt_issuer": claims["iss"]}
    async with authenticator(sqlite_url, **settings) as (hf, auth):
        await hf.members.add("acme", claims["sub"], "owner")
        await hf.members.add("acme", "boss", "owner")
        with pytest.raises(Unauthenticated) as refused:
            await auth.caller_of(request_with(make(claims)))
    assert SECRET not in str(refused.value)


async def test_a_clock_that_is_a_little_off_does_no_harm(sqlite_url: str) -> None:
    """A few seconds either way."""
    claims = supabase(exp=int(time.time()) - 3, nbf=int(time.time()) + 3)
    async with authenticator(sqlite_url) as (hf, auth):
        await hf.members.add("acme", claims["sub"], "viewer")
        assert (await auth.caller_of(request_with(signed(claims)))).role is Role.VIEWER


async def test_the_service_role_needs_a_setting(sqlite_url: str) -> None:
    """Otherwise a secret that was only meant for logins would open everything."""
    token = signed({"role": "service_role", "iss": "supabase", "exp": int(time.time()) + 60})
    async with authenticator(sqlite_url) as (_, auth):
        with pytest.raises(Unauthenticated, match="HOLDFAST_JWT_SERVICE_ROLE"):
            await auth.caller_of(request_with(token))
    async with authenticator(sqlite_url, jwt_service_role=True) as (_, auth):
        caller = await auth.caller_of(request_with(token))
    assert (caller.tenant, caller.role) == (None, Role.SERVICE)


async def test_claims_may_name_organization_and_role(sqlite_url: str) -> None:
    """Where the settings say so; the list of members is then not asked."""
    claims = supabase()
    settings = {"jwt_tenant_claim": "app_metadata.org", "jwt_role_claim": "app_metadata.org_role"}
    async with authenticator(sqlite_url, **settings) as (_, auth):
        caller = await auth.caller_of(request_with(signed(claims)))
        assert (caller.tenant, caller.role, await auth.still(caller)) == ("acme", Role.ADMIN, True)
        for wrong in ({}, {"org": "acme"}, {"org": "acme", "org_role": "service"}, {"org": 7, "org_role": "admin"}, "x", None):
            with pytest.raises(Forbidden):
                await auth.caller_of(request_with(signed(supabase(app_metadata=wrong))))
        with pytest.raises(Forbidden):
            await auth.caller_of(request_with(signed(claims), x_holdfast_tenant="globex"))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"jwt_secret": "short"}, "32 characters"),
        ({"jwt_secret": SECRET, "jwks_url": JWKS}, "both"),
        ({"jwt_tenant_claim": "org"}, "belong together"),
        ({"jwt_tenant_claim": "user_metadata.org", "jwt_role_claim": "app_metadata.role"}, "only the issuer"),
        ({"jwks_url": "http://id.example.com/keys"}, "https"),
        ({"jwks_url": "https://user:pass@id.example.com/keys"}, "https"),
        ({"jwt_service_role": "maybe"}, "true or false"),
        ({"jwt_audience": ""}, "aud"),
    ],
)
def test_settings_that_would_open_a_door_are_refused(settings: dict[str, Any], word: str) -> None:
    """By name, and without the secret in the sentence."""
    with pytest.raises(ConfigError, match=word) as refused:
        load_settings(**settings)
    assert str(settings.get("jwt_secret", "?")) not in str(refused.value)


def test_the_secret_is_not_in_the_settings_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment and is never printed."""
    monkeypatch.setenv("HOLDFAST_JWT_SECRET", SECRET)
    monkeypatch.setenv("HOLDFAST_JWT_SERVICE_ROLE", "true")
    settings = load_settings()
    assert (settings.jwt_secret, settings.jwt_service_role) == (SECRET, True)
    assert SECRET not in repr(settings)


# -- published keys ----------------------------------------------------------------------------------------------------


class Issuer:
    """Signs tokens and publishes its keys; counts how often it is asked."""

    def __init__(self) -> None:
        self.private: dict[str, Any] = {}
        self.published: list[dict[str, Any]] = []
        self.asked = 0
        self.away = False

    def add(self, kid: str, private: Any, **more: Any) -> None:
        self.private[kid] = private
        kind = jwt.algorithms.RSAAlgorithm if isinstance(private, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        self.published.append({**json.loads(kind.to_jwk(private.public_key())), "kid": kid, "use": "sig", **more})

    def sign(self, kid: str, algorithm: str, claims: dict[str, Any] | None = None) -> str:
        return jwt.encode(claims or supabase(), self.private[kid], algorithm=algorithm, headers={"kid": kid})

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        return httpx.Response(503) if self.away else httpx.Response(200, json={"keys": self.published})

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer))


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def issuer(rsa_key: rsa.RSAPrivateKey) -> Issuer:
    made = Issuer()
    made.add("one", rsa_key, alg="RS256")
    return made


class Time:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def time(self) -> float:
        return time.time()


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The hands of the process's clock, moved by the test."""
    moved = Time()
    monkeypatch.setattr(tokens, "time", moved)
    return moved


def reader(issuer: Issuer) -> Tokens:
    return Tokens(load_settings(jwks_url=JWKS), issuer.client())


async def test_a_token_signed_with_a_published_key_holds(issuer: Issuer) -> None:
    """RSA and elliptic curves; the keys are fetched once."""
    issuer.add("two", ec.generate_private_key(ec.SECP256R1()))
    reading = reader(issuer)
    for kid, algorithm in (("one", "RS256"), ("two", "ES256"), ("one", "RS256")):
        assert (await reading.read(issuer.sign(kid, algorithm))).subject == supabase()["sub"]
    assert issuer.asked == 1


async def test_a_key_that_is_new_is_fetched(issuer: Issuer, hands: Time) -> None:
    """The issuer rotates its keys whenever it likes; asking too often is not how an unknown one is answered."""
    reading = reader(issuer)
    await reading.read(issuer.sign("one", "RS256"))
    issuer.add("two", ec.generate_private_key(ec.SECP256R1()))
    token = issuer.sign("two", "ES256")
    with pytest.raises(Unauthenticated):
        await reading.read(token)
    asked_early = issuer.asked
    hands.seconds += tokens.REFETCH_SECONDS
    assert (await reading.read(token)).subject
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await reading.read(jwt.encode(supabase(), issuer.private["one"], algorithm="RS256", headers={"kid": "unknown"}))
    assert (asked_early, issuer.asked) == (1, 2)


async def test_a_key_that_was_taken_back_stops_working(issuer: Issuer, hands: Time) -> None:
    """When the keys are fetched the next time."""
    issuer.add("two", ec.generate_private_key(ec.SECP256R1()))
    reading = reader(issuer)
    token = issuer.sign("one", "RS256")
    await reading.read(token)
    issuer.published = issuer.published[1:]
    hands.seconds += tokens.KEYS_LIFE_SECONDS
    with pytest.raises(Unauthenticated):
        await reading.read(token)


async def test_an_issuer_that_is_away_does_no_harm_to_known_keys(issuer: Issuer, hands: Time) -> None:
    """Somebody whose key is not known yet is told that it is not his fault."""
    issuer.away = True
    reading = reader(issuer)
    token = issuer.sign("one", "RS256")
    for _ in range(3):
        with pytest.raises(SignerUnavailable):
            await reading.read(token)
    assert issuer.asked == 1
    hands.seconds += tokens.REFETCH_SECONDS
    issuer.away = False
    await reading.read(token)
    issuer.away = True
    hands.seconds += tokens.KEYS_LIFE_SECONDS
    assert (await reading.read(token)).subject


async def test_an_issuer_that_does_not_answer_is_as_good_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that sends a byte now and then, which no timeout of a connection would end."""
    monkeypatch.setattr(tokens, "FETCH_SECONDS_MAX", 0.05)

    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async with httpx.AsyncClient(transport=httpx.MockTransport(never)) as client:
        with pytest.raises(SignerUnavailable):
            await KeySet(JWKS, client).key("one")


async def test_a_user_id_is_never_cut_off(sqlite_url: str) -> None:
    """Two users whose ids begin alike must not become one, who would be given the other's answers again."""
    async with authenticator(sqlite_url) as (hf, auth):
        await hf.members.add("acme", "u" * 195)
        longest = await auth.caller_of(request_with(signed(supabase(sub="u" * 195))))
        with pytest.raises(Unauthenticated, match="whose"):
            await auth.caller_of(request_with(signed(supabase(sub="u" * 196))))
    assert longest.actor == "user:" + "u" * 195


async def test_a_public_key_is_no_secret_to_sign_with(issuer: Issuer, rsa_key: rsa.RSAPrivateKey) -> None:
    """The confusion of algorithms: HS256 with the published key as its secret, an unsigned token, a key's other algorithm."""
    pem = rsa_key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    claims = supabase()
    body = jwt.encode(claims, "x" * 32, algorithm="HS256", headers={"kid": "one"}).rpartition(".")[0]
    digest = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(body.encode(), pem)
    forged = f"{body}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    unsigned = jwt.encode(claims, None, algorithm="none", headers={"kid": "one"})
    for token in (forged, unsigned, issuer.sign("one", "RS512"), issuer.sign("one", "PS256")):
        with pytest.raises(Unauthenticated):
            await reader(issuer).read(token)


def test_only_keys_for_signatures_are_used(rsa_key: rsa.RSAPrivateKey) -> None:
    """Shared secrets in a published set, keys for encryption and nonsense are passed over."""
    issuer = Issuer()
    issuer.add("encrypts", rsa_key)
    issuer.published[0]["use"] = "enc"
    secret = {"kty": "oct", "k": base64.urlsafe_b64encode(b"x" * 32).decode(), "kid": "oct", "alg": "HS256"}
    lied = {**issuer.published[0], "use": "sig", "alg": "HS256", "kid": "lied"}
    nonsense = [7, {}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256"}, {"kty": "RSA", "n": 1, "e": 2, "kid": 3}]
    assert usable_keys({"keys": [*issuer.published, secret, lied, *nonsense]}) == {}
    assert [usable_keys(one) for one in (None, [], {}, {"keys": 7})] == [{}, {}, {}, {}]


async def test_a_key_set_without_end_is_not_read_to_its_end() -> None:
    """A megabyte is more than any issuer has."""
    huge = httpx.MockTransport(lambda _: httpx.Response(200, content=b"[" + b" " * 2_000_000))
    async with httpx.AsyncClient(transport=huge) as client:
        with pytest.raises(SignerUnavailable):
            await KeySet(JWKS, client).key("one")
