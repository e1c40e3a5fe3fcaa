"""Where webhooks may go: nothing that is not public, by whatever name or notation, unless its network is allowed."""

from __future__ import annotations

import ipaddress

import pytest

from holdfast.errors import InvalidOption, TargetRefused
from holdfast.webhooks.targets import check_url, resolve
from tests.support.addresses import PRIVATE, PUBLIC, PUBLIC_6, answer


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
    asked = answer(monkeypatch, PUBLIC, PUBLIC_6)
    first, second = await resolve("https://example.com:8443/hook?a=1", ())
    assert (first.url, first.host, first.name) == (f"https://{PUBLIC}:8443/hook?a=1", "example.com:8443", "example.com")
    assert second.url == f"https://[{PUBLIC_6}]:8443/hook?a=1"
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
