"""Signatures: ours against the reference library, and every way in which one can be wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast.errors import ConfigError, SignatureInvalid
from holdfast.webhooks.sealing import seal, unseal
from holdfast.webhooks.signing import PREFIX, check_secret, headers_of, key_of, new_secret, signature, verify

NOW = 1_900_000_000
SECRET = PREFIX + base64.b64encode(b"k" * 24).decode()
OTHER = PREFIX + base64.b64encode(b"o" * 24).decode()


def test_the_known_vector_of_the_convention() -> None:
    """The example that the reference implementations are tested with."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(max_size=200), st.from_regex(r"msg_[A-Za-z0-9]{1,40}", fullmatch=True))
def test_the_reference_library_signs_the_same(body: bytes, message: str) -> None:
    """For any body that is text, byte by byte."""
    text = body.decode("latin-1")
    at = datetime.fromtimestamp(NOW, UTC)
    assert signature(SECRET, message, NOW, text.encode()) == Webhook(SECRET).sign(message, at, text)


def test_the_reference_library_accepts_what_we_send_and_refuses_another_body() -> None:
    """With the headers as they go out, also while a secret is being changed."""
    now = int(time.time())
    headers = headers_of([new_secret(), SECRET], "msg_1", now, b'{"a":1}')
    assert Webhook(SECRET).verify(b'{"a":1}', headers) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b'{"a":2}', headers)


def test_either_secret_is_accepted_while_one_is_changed() -> None:
    """On both sides: two signatures, or two accepted secrets."""
    both = headers_of([OTHER, SECRET], "msg_1", NOW, b"{}")
    assert verify("standard", [SECRET], both, b"{}", NOW, 300).delivery == "msg_1"
    new = headers_of([SECRET], "msg_1", NOW, b"{}")
    assert verify("standard", [OTHER, SECRET], new, b"{}", NOW, 300).delivery == "msg_1"


RIGHT = headers_of([SECRET], "msg_1", NOW, b"{}")


@pytest.mark.parametrize(
    ("changed", "body", "now"),
    [
        ({}, b"{ }", NOW),
        ({"webhook-id": "msg_2"}, b"{}", NOW),
        ({"webhook-id": ""}, b"{}", NOW),
        ({"webhook-timestamp": str(NOW + 1)}, b"{}", NOW),
        ({"webhook-timestamp": "now"}, b"{}", NOW),
        ({"webhook-timestamp": "9" * 40}, b"{}", NOW),
        ({}, b"{}", NOW + 301),
        ({}, b"{}", NOW - 301),
        ({"webhook-signature": signature(OTHER, "msg_1", NOW, b"{}")}, b"{}", NOW),
        ({"webhook-signature": RIGHT["webhook-signature"].replace("v1,", "v2,")}, b"{}", NOW),
        ({"webhook-signature": "v1,"}, b"{}", NOW),
        ({"webhook-signature": "v1,%%%"}, b"{}", NOW),
        ({"webhook-signature": ""}, b"{}", NOW),
        ({"webhook-signature": "v1," + "é" * 10}, b"{}", NOW),
    ],
)
def test_what_is_changed_is_refused(changed: dict[str, str], body: bytes, now: int) -> None:
    """Body, id, time, signature: each is covered, and the time must be about now."""
    with pytest.raises(SignatureInvalid):
        verify("standard", [SECRET], {**RIGHT, **changed}, body, now, 300)


def test_github_signs_the_body() -> None:
    """As documented by GitHub, with its own example."""
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    known = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": f"sha256={known}", "x-github-delivery": "d1", "x-github-event": "push"}
    assert verify("github", ["wrong one", secret], headers, body, NOW, 300) == ("d1", "push")
    for bad in (known[:-1] + "8", "", "zz", known.upper()[:10]):
        with pytest.raises(SignatureInvalid):
            verify("github", [secret], {"x-hub-signature-256": f"sha256={bad}"}, body, NOW, 300)
    with pytest.raises(SignatureInvalid):
        verify("github", [secret], {"x-hub-signature-256": f"sha1={known}"}, body, NOW, 300)


def test_a_timestamped_signature_of_stripes_kind() -> None:
    """One of several v1 signatures suffices; an old one does not."""
    signed = hmac.new(b"whsec_stripe", f"{NOW}.{{}}".encode(), hashlib.sha256).hexdigest()
    headers = {"stripe-signature": f"t={NOW},v1={'0' * 64},v1={signed},v0=x"}
    verify("stripe", ["whsec_stripe"], headers, b"{}", NOW + 299, 300)
    for now, body in ((NOW + 301, b"{}"), (NOW, b"{} ")):
        with pytest.raises(SignatureInvalid):
            verify("stripe", ["whsec_stripe"], headers, body, now, 300)


def test_secrets_that_are_none_are_refused_and_not_shown() -> None:
    """Too short, too long, no base64."""
    assert len(key_of(new_secret())) == 32
    for bad in ("whsec_AAAA", "whsec_" + "A" * 1000, "whsec_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!", 7):
        with pytest.raises(ConfigError) as refused:
            check_secret("standard", bad)
        assert "AAAA" not in str(refused.value)


def test_a_sealed_secret_opens_with_its_key_in_its_place_alone() -> None:
    """Without a key it stays as it is."""
    key = (b"e" * 32,)
    sealed = seal(SECRET, key, "wh_1")
    assert SECRET not in sealed and sealed != seal(SECRET, key, "wh_1")
    assert unseal(sealed, key, "wh_1") == SECRET
    assert unseal(seal(SECRET, (), "wh_1"), key, "wh_1") == SECRET
    for wrong, place in (((b"f" * 32,), "wh_1"), (key, "wh_2"), ((), "wh_1")):
        with pytest.raises(ConfigError):
            unseal(sealed, wrong, place)
