"""Addresses that strangers may not name, and a resolver that says what a test wants."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

PUBLIC = "93.184.215.14"
PUBLIC_6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
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
    "192.0.0.192",  # the metadata of Oracle Cloud
    "192.0.0.8",
    "168.63.129.16",  # the wire server of Azure
    "::ffff:168.63.129.16",
    "64:ff9b::a83f:8110",
    "2002:a83f:8110::1",
    "2606:2800:21f:cb07:0:5efe:a83f:8110",
    "64:ff9b:1::1",
    "2001:0:53aa:64c:0:fbff:a23e:ab01",
    "2001:20::1",
    "100::1",
    "100:0:0:1::1",
    "3fff::1",
    "3fff:fff::1",
    "5f00::1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "192.88.99.1",
    "161.26.0.10",
    "fd00:ec2::254",
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
