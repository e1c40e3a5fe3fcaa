"""What the doctor says of one thing that it looked at."""

from __future__ import annotations

from typing import Literal

import msgspec


class Check(msgspec.Struct):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "warning", "error"]
    message: str
    advice: str = ""
