"""Redaction of a megabyte of each kind of text, in milliseconds, beside one plain scan of the same text."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial

import msgspec

from bench.noise import Sample, alternate
from bench.places import Place
from bench.plan import Line, Plan
from holdfast.redact import redact, redact_json

BYTES = 1_000_000
TEXTS = {
    "a log": "2026-01-05 12:30:01 INFO worker 7 fetched https://example.com/items?page=12 in 120 ms\n",
    "a log full of secrets": "clone https://oauth2:ghp_abcdefghijklmnop@github.com/a.git with Authorization: Bearer abc.def\n",
    "code": "def connect(host: str, port: int = 5432) -> None:  # opens a session, raises ConnectionError\n    pass\n",
    "base64": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "one letter": "a",
    "Japanese": "ジョブは完了しました。",
    "hostile: eyJ": "eyJ",
    "hostile: short JWTs": "eyJabcdefgh ",
    "hostile: ://": "://a:",
    "hostile: user info": "://a:b@",
    "hostile: bearer": "bearer ",
    "hostile: basic": "basic aB34aB34 ",
    "hostile: authorization": "authorization: ",
    "hostile: AKIA": "AKIA",
    "hostile: ghp_": "ghp_",
    "hostile: private keys": "-----BEGIN A PRIVATE KEY-----x-----END A PRIVATE KEY-----",
    "hostile: near private keys": "-----BEGIN AAAA BBBB CCCC ",
}
_PLAIN = re.compile(r"\w+")


async def measure(places: list[Place], plan: Plan) -> list[Line]:
    lines = []
    for title, piece in TEXTS.items():
        text = piece * (BYTES // len(piece.encode()))
        lines.append(await _line(f"1 MB of {title}", plan, partial(redact, text), partial(_PLAIN.findall, text)))
    small = msgspec.json.encode({"rows": 12345, "file": "s3://bucket/a/b.csv"})
    large = msgspec.json.encode([{"rows": number, "name": f"part {number}"} for number in range(30_000)])
    lines.append(await _line("a small result, 1,000 times", plan, lambda: [redact_json(small) for _ in range(1000)]))
    lines.append(await _line("a result of 1 MB", plan, lambda: redact_json(large), lambda: _PLAIN.findall(large.decode())))
    return lines


async def _line(title: str, plan: Plan, work: Callable[[], object], plain: Callable[[], object] | None = None) -> Line:
    found, calibrations = await alternate(plan.runs, *(_milliseconds(one) for one in (work, plain) if one))
    floors = {"scan": found[1]} if plain else {}
    line = Line(metric="redact", store="no store", title=f"redact {title}", unit="ms", ours=found[0], floors=floors)
    return msgspec.structs.replace(line, calibrations=calibrations)


def _milliseconds(work: Callable[[], object]) -> Sample:
    async def sample() -> float:
        best = float("inf")
        for _ in range(5):
            started = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - started)
        return best * 1000

    return sample
