"""How much a body of JSON may hold, seen before any of it is checked: each key costs far more than its bytes."""

from __future__ import annotations

import re

BYTES_PER_KEY = 100
BYTES_PER_PART = 50
LEAST = 1000

# A string that does not end reaches to the end: otherwise each quote in it would be tried as a beginning again.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?(?:[ \t\r\n]*+(:))?|([{\[])', re.DOTALL)


class Room:
    """By the bytes that a payload may have: 10,485 keys and 20,971 objects and lists for the usual one of 1 MiB."""

    def __init__(self, payload_bytes_max: int) -> None:
        self.keys = max(LEAST, payload_bytes_max // BYTES_PER_KEY)
        self.parts = max(LEAST, payload_bytes_max // BYTES_PER_PART)

    def too_much(self, body: bytes) -> str | None:
        """What is wrong with it, if anything. Text that is no JSON is left to its reader."""
        if body.count(b":") <= self.keys and body.count(b"{") + body.count(b"[") <= self.parts:
            return None
        keys = parts = 0
        for found in _TOKEN.finditer(body):  # in strings these signs mean nothing
            if found[1]:
                keys += 1
            elif found[2]:
                parts += 1
            if keys > self.keys:
                return f"A body has at most {self.keys} keys."
            if parts > self.parts:
                return f"A body has at most {self.parts} objects and lists."
        return None
