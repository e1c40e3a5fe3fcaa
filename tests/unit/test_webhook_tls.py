"""The call itself over TLS: to the address that was checked, under the name that the certificate must be for."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.webhooks.delivery import DeliveryFailed, _post
from tests.support.stand_in import Answer, StandIn

PLATFORM: Any = SimpleNamespace(settings=SimpleNamespace(webhook_networks=(ipaddress.ip_network("127.0.0.0/8"),)))


def certificate(folder: Path, name: str) -> Path:
    """Signed by itself, for this name alone; key and certificate in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def serving(pem: Path) -> AsyncIterator[StandIn]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    service = StandIn()
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0, ssl=context)
    service.port = server.sockets[0].getsockname()[1]
    try:
        yield service
    finally:
        server.close()
        service.hang_up()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name is at 127.0.0.1; those that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        return [(2, 1, 6, "", ("127.0.0.1", port))] if host != "127.0.0.1" else [(2, 1, 6, "", (host, port))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


async def test_the_certificate_must_be_for_the_name_although_the_address_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """The right name is delivered to; another name at the same address is not; the name is asked for once."""
    pem = certificate(tmp_path, "hook.example")
    monkeypatch.setattr(certifi, "where", lambda: str(pem))
    async with serving(pem) as service:
        service.reply = lambda asked: Answer(200, b"thanks")
        answer = await _post(PLATFORM, f"https://hook.example:{service.port}/in?x=1", {"webhook-id": "msg_1"}, b"{}")
        assert (answer["status"], answer["answer"]) == (200, "thanks")
        (asked,) = service.asked
        assert (asked.path, asked.headers["host"]) == ("/in?x=1", f"hook.example:{service.port}")
        assert [name for name in names if name != "127.0.0.1"] == ["hook.example"]
        with pytest.raises(DeliveryFailed, match="certificate"):
            await _post(PLATFORM, f"https://other.example:{service.port}/in", {}, b"{}")
        assert len(service.asked) == 1


async def test_a_proxy_of_the_environment_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """It would connect to wherever it likes, past the check."""
    pem = certificate(tmp_path, "hook.example")
    monkeypatch.setattr(certifi, "where", lambda: str(pem))
    for variable in ("HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    async with serving(pem) as service:
        assert (await _post(PLATFORM, f"https://hook.example:{service.port}/", {}, b"{}"))["status"] == 200
