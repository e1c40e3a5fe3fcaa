"""Where webhooks may go: nothing that is not public, by whatever name or notation, unless its network is allowed."""

from __future__ import annotations

import ipaddress

import pytest

from holdfast.addresses import is_public
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


@pytest.mark.parametrize(
    ("written", "spelled"), [("bücher.example", "xn--bcher-kva.example"), ("faß.example:8443", "xn--fa-hia.example:8443")]
)
async def test_a_name_beyond_ascii_is_looked_up_and_called_in_one_spelling(
    monkeypatch: pytest.MonkeyPatch, written: str, spelled: str
) -> None:
    """The resolver, the header Host and TLS get the same one, which is ASCII."""
    asked = answer(monkeypatch, PUBLIC)
    (target,) = await resolve(f"https://{written}/hook", ())
    assert (target.host, target.name, asked) == (spelled, spelled.partition(":")[0], [spelled.partition(":")[0]])


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "a..example", "\u2488com.example", "xn--\u00fc", "exa%6dple.com"])
async def test_a_name_that_cannot_be_encoded_is_refused(host: str) -> None:
    """When it is stored, and where it was stored before."""
    with pytest.raises(InvalidOption, match=r"names no host|cannot be read"):
        check_url(f"https://{host}/hook", ())
    with pytest.raises(TargetRefused):
        await resolve(f"https://{host}/hook", ())


@pytest.mark.parametrize("host", ["１２７.０.０.１", "127。0。0。1"])
async def test_digits_that_only_look_like_digits_are_an_address(host: str) -> None:
    """It is refused like the one that it stands for."""
    with pytest.raises(InvalidOption, match="not public"):
        check_url(f"https://{host}/hook", ())


@pytest.mark.parametrize(
    "address", [PUBLIC, PUBLIC_6, f"::ffff:{PUBLIC}", "64:ff9b::5db8:d70e", "2002:5db8:d70e::1", "8.8.8.8"]
)
def test_public_addresses_stay_public(address: str) -> None:
    """Also inside of the forms that carry one of IPv4."""
    assert is_public(ipaddress.ip_address(address))
