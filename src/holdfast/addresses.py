"""Which addresses of the internet are public: what strangers name may lead nowhere else."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could mean the same machine by it. One of IPv4 inside of one of IPv6 counts."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local or address.scope_id is not None:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
