"""Where a webhook may go: public addresses, unless the operator allows a network. What was checked is what is called.

A name is resolved once, every address it has is checked, and the connection is made to one of those addresses: a name that
answers differently the next moment (DNS rebinding) gains nothing by it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from holdfast.addresses import Address, ascii_host, is_public
from holdfast.errors import InvalidOption, TargetRefused

URL_CHARS_MAX = 2000
ADDRESSES_MAX = 8

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Target(NamedTuple):
    """An address that may be called, and what to say there."""

    url: str
    """With the address in place of the name."""
    host: str
    """For the header Host."""
    name: str
    """What its certificate must be for."""


def check_url(url: object, allowed: Sequence[Network]) -> str:
    """Before it is stored; names are not resolved yet. InvalidOption says what is wrong with it."""
    if not isinstance(url, str) or not 0 < len(url) <= URL_CHARS_MAX or not url.isprintable() or " " in url:
        raise InvalidOption(f"url must be the address of a webhook of up to {URL_CHARS_MAX} characters.")
    try:
        _parts(url, allowed)
    except TargetRefused as refused:
        raise InvalidOption(str(refused)) from None
    return url


async def resolve(url: str, allowed: Sequence[Network]) -> list[Target]:
    """Every address behind this URL, all of them checked. OSError where the name has none."""
    parts, name, literal = _parts(url, allowed)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = [literal] if literal is not None else await _addresses_of(name, port)
    for address in addresses:
        _require_public(address, name, parts.scheme, allowed)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = (f"[{name}]" if ":" in name else name) + (f":{parts.port}" if parts.port else "")
    return [Target(f"{parts.scheme}://{_written(address)}:{port}{path}", host, name) for address in addresses[:ADDRESSES_MAX]]


def _parts(url: str, allowed: Sequence[Network]) -> tuple[SplitResult, str, Address | None]:
    """With the host as it is looked up, and the address if it is one."""
    try:
        parts = urlsplit(url)
        name, _ = parts.hostname or "", parts.port
    except ValueError:
        raise TargetRefused("The webhook's address cannot be read as a URL.") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and allowed):
        raise TargetRefused("A webhook's address begins with https:// (http:// only into a network of webhook_networks).")
    if "@" in parts.netloc or not name or parts.fragment:
        raise TargetRefused("A webhook's address is https://host/path, without a user, a password or a fragment.")
    try:
        name = ascii_host(name)
    except ValueError as error:
        raise TargetRefused(f"The webhook's address names no host: {error}.") from None
    literal = _literal(name)
    if literal is not None:
        _require_public(literal, name, parts.scheme, allowed)
    return parts, name, literal


def _literal(name: str) -> Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


async def _addresses_of(name: str, port: int) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(entry[4][0]) for entry in found))


def _require_public(address: Address, name: str, scheme: str, allowed: Sequence[Network]) -> None:
    plain = address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address
    if any(plain in network for network in allowed if network.version == plain.version):
        return
    if not is_public(address):
        raise TargetRefused(
            f"{name} is at an address that is not public; whoever runs this service can allow a network by webhook_networks."
        )
    if scheme != "https":
        raise TargetRefused("A webhook outside the networks of webhook_networks needs https://.")


def _written(address: Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)
