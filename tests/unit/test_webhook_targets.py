"""Where webhooks may go: nothing that is not public, by whatever name or notation, unless its network is allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

import pytest

from holdfast.errors import InvalidOption, TargetRefused
from holdfast.webhooks.targets import check_url, resolve

PUBLIC = "93.184.215.14"
PRIVATE = [
    "127.0.0.1",
    "127.8.9.10",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "255.255.255.255",
    "224.0.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "240.0.0.1",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "fd12::1",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "::ffff:169.254.169.254",
]


def answer(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Every name has these addresses; the names that were asked for."""
    asked: list[str] = []

    async def getaddrinfo(self: Any, host: str, port: int, **options: Any) -> list[Any]:
        asked.append(host)
        if not addresses:
            raise socket.gaierror("no such name")
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize("address", PRIVATE)
async def test_an_address_that_is_not_public_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written out, when it is stored and when it is called; and behind a name."""
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(InvalidOption):
        check_url(f"https://{host}/hook", ())
    with pytest.raises(TargetRefused):
        await resolve(f"https://{host}/hook", ())
    answer(monkeypatch, address)
    with pytest.raises(TargetRefused):
        await resolve("https://example.com/hook", ())


async def test_one_private_address_among_public_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a second try would reach it."""
    answer(monkeypatch, PUBLIC, "10.0.0.1")
    with pytest.raises(TargetRefused):
        await resolve("https://example.com/hook", ())


async def test_the_address_that_was_checked_is_the_one_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is asked for once and is not in the URL any more, so that it cannot answer anew; TLS still knows it."""
    asked = answer(monkeypatch, PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c")
    first, second = await resolve("https://example.com:8443/hook?a=1", ())
    assert (first.url, first.host, first.name) == (f"https://{PUBLIC}:8443/hook?a=1", "example.com:8443", "example.com")
    assert second.url == "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8443/hook?a=1"
    assert asked == ["example.com"]


@pytest.mark.parametrize("odd", ["2130706433", "0x7f000001", "127.1", "017700000001"])
async def test_odd_notations_of_loopback_are_resolved_and_refused(odd: str) -> None:
    """The system's resolver understands them; what counts is the address that it gives."""
    with pytest.raises((TargetRefused, OSError)):
        await resolve(f"https://{odd}/hook", ())


async def test_a_network_that_is_allowed_may_be_called_and_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """But http goes nowhere else."""
    allowed = [ipaddress.ip_network("10.0.0.0/8")]
    assert (await resolve("http://10.1.2.3/hook", allowed))[0].url == "http://10.1.2.3:80/hook"
    assert (await resolve("https://[::ffff:10.1.2.3]/", allowed))[0].url.startswith("https://[::ffff:")
    answer(monkeypatch, PUBLIC)
    for url in ("http://example.com/hook", "https://10.1.2.3:99999/", "https://192.168.0.1/"):
        with pytest.raises(TargetRefused):
            await resolve(url, allowed)


@pytest.mark.parametrize(
    "url",
    ["", "example.com", "http://example.com/", "ftp://example.com/", "https:///path", "https://user:pw@example.com/",
     "https://example.com/#part", "https://exa mple.com/", "https://example.com:port/", "https://[::1/", "file:///etc/passwd",
     "https://example.com/\n", "https://" + "a" * 3000],
)  # fmt: skip
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    """Before anything is stored."""
    with pytest.raises(InvalidOption):
        check_url(url, ())
