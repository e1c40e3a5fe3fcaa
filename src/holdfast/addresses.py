"""Which addresses of the internet are public, and how a host is written: what strangers name may lead nowhere else."""

from __future__ import annotations

import ipaddress
import re

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

HOST_CHARS_MAX = 253
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")

# By IANA's registries of special-purpose addresses, whichever part of them this Python knows.
_SPECIAL_4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # Azure: the wire server of each virtual machine
        "161.26.0.0/16", "166.8.0.0/14",  # IBM Cloud: services that only its own machines reach
    )
]  # fmt: skip
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL_6 = [
    ipaddress.IPv6Network(network)
    for network in ("2001::/23", "2001:db8::/32", "3fff::/20")  # the first: Teredo, ORCHID, benchmarking, …
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def is_public(address: Address) -> bool:
    """Whether anyone on the internet could mean the same machine by it. One of IPv4 inside of one of IPv6 counts."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _SPECIAL_4)
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    if address.scope_id is not None or address not in _GLOBAL_6:
        return False
    return address.is_global and not any(address in network for network in _SPECIAL_6)


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address that packets to this one end up at: mapped, by 6to4, by NAT64 or by ISATAP."""
    if found := address.ipv4_mapped or address.sixtofour:
        return found
    if address in _NAT64 or (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def ascii_host(host: str) -> str:
    """The one spelling of a host that resolvers, curl, git and httpx all read alike. ValueError where there is none.

    They have different ideas of names beyond ASCII: what one of them has checked, another one would look up by another name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    name = (host if host.isascii() else _encoded(host)).lower().removesuffix(".")
    try:
        return str(ipaddress.ip_address(name))  # of digits that are not those of ASCII
    except ValueError:
        pass
    if len(name) > HOST_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{host[:100]!r} is no host name")
    return name


def _encoded(host: str) -> str:
    try:
        import idna  # late: few need it; httpx brings it along
    except ModuleNotFoundError:
        raise ValueError(f"{host[:100]!r} is beyond ASCII; write it as xn--…") from None
    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError as error:
        raise ValueError(f"{host[:100]!r} is no host name: {error}") from None
