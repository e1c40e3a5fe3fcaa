"""Inputs that a fuzzer works out by what they make our code do: `make fuzz-coverage MINUTES=40`, or READER=redact for one.

Each reader of `tests/fuzz/table.py` runs in a process of its own, for an equal share of the time, from its seeds and from what
earlier runs have kept in `build/fuzz`. An input that breaks a promise is made as small as can be, and shown: it belongs into
`tests/fuzz/found`, named by what it shows, where `make test` tries it for ever.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import atheris

if TYPE_CHECKING:
    from tests.fuzz.reader import Reader  # elsewhere late: what is imported before the fuzzer looks on is not led by coverage

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "fuzz"
SECONDS_PER_INPUT_MAX = 20
MEGABYTES_MAX = 3_000
_STAT = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_COVERAGE = re.compile(r"\bcov: (\d+)")
INSTRUMENTED = ["holdfast", "packageurl", "packaging", "cronsim", "jwt"]


class Outcome(NamedTuple):
    reader: str
    inputs: int
    edges: int
    seconds: float
    broken: list[Path]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all readers together")
    parser.add_argument("--reader", action="append", help="only these")
    given = parser.parse_args()
    with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=INSTRUMENTED):  # it names every module
        from tests.fuzz.table import READERS
    names = given.reader or list(READERS)
    if unknown := sorted(set(names) - set(READERS)):
        print(f"There is no reader {unknown[0]}; there are {', '.join(READERS)}.")
        return 2
    outcomes = []
    for name in names:
        outcomes.append(outcome := _in_own_process(READERS[name], given.minutes * 60 / len(names)))
        print(f"{name:<20} {outcome.inputs:>10,} inputs {outcome.edges:>6,} edges {outcome.seconds:>6.0f} s", flush=True)
        for place in outcome.broken:
            _show(READERS[name], place)
    broken = sum(len(one.broken) for one in outcomes)
    seconds = sum(one.seconds for one in outcomes)
    total = sum(one.inputs for one in outcomes)
    print(f"{len(outcomes)} readers, {total:,} inputs in {seconds / 60:.0f} min, {broken} broke a promise.")
    return 1 if broken else 0


def _in_own_process(reader: Reader, seconds: float) -> Outcome:
    """The fuzzer ends its process, whichever way it ends. Forked: to import all of it again would take longer than to fuzz."""
    place = BUILD / reader.name
    (place / "corpus").mkdir(parents=True, exist_ok=True)
    before = set(place.glob("*-*"))
    started = time.monotonic()
    child = os.fork()
    if not child:
        _fuzz(reader, seconds)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = (place / "log").read_text("utf-8", "replace")
    stats = {name: int(value) for name, value in _STAT.findall(said)}
    edges = max(map(int, _COVERAGE.findall(said)), default=0)
    broken = sorted(set(place.glob("*-*")) - before)
    if code and not broken:
        broken = [place / "log"]
    return Outcome(reader.name, stats.get("number_of_executed_units", 0), edges, time.monotonic() - started, broken)


def _fuzz(reader: Reader, seconds: float) -> NoReturn:
    place = BUILD / reader.name
    from tests.fuzz.reader import FOUND

    kept = FOUND / reader.name
    for data in [*reader.seeds, *(one.read_bytes() for one in (kept.iterdir() if kept.is_dir() else ()))]:
        (place / "corpus" / hashlib.sha1(data).hexdigest()).write_bytes(data)
    options = [f"-max_total_time={seconds:.0f}", f"-max_len={reader.bytes_max}", f"-timeout={SECONDS_PER_INPUT_MAX}"]
    options += [f"-rss_limit_mb={MEGABYTES_MAX}", f"-artifact_prefix={place}/", "-print_final_stats=1"]
    if reader.words:
        (place / "words").write_text("".join(f'"{_escaped(word)}"\n' for word in reader.words))
        options.append(f"-dict={place}/words")
    with open(place / "log", "wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    inputs = 0

    def read(data: bytes) -> None:
        nonlocal inputs
        inputs += 1
        try:
            reader.read(data)
        except Exception:  # kept by ourselves: the fuzzer sometimes ends without having written it
            traceback.print_exc()
            (place / f"crash-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
            print(f"stat::number_of_executed_units: {inputs}", flush=True)
            os._exit(1)

    atheris.Setup([sys.argv[0], *options, str(place / "corpus")], read)
    atheris.Fuzz()
    os._exit(0)


def _escaped(word: str) -> str:
    return "".join(chr(b) if 32 <= b < 127 and chr(b) not in '\\"' else f"\\x{b:02x}" for b in word.encode())


def _show(reader: Reader, place: Path) -> None:
    if place.name == "log":
        print(f"  the fuzzer ended without an input; see {place}")
        return
    data = place.read_bytes()
    if place.name.startswith("crash-"):
        data = smallest(reader.read, data)
        place.write_bytes(data)
    print(
        f"  {complaint(reader.read, data) or place.name}",
        f"  {json.dumps(data.decode('latin-1'))[:400]}",
        f"  {place.relative_to(ROOT)}",
        sep="\n",
    )


def complaint(read: Callable[[bytes], None], data: bytes) -> str | None:
    """What is broken by an input; None where nothing is."""
    try:
        read(data)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:100]}"
    return None


def smallest(read: Callable[[bytes], None], data: bytes) -> bytes:
    """Without every part that the complaint does not need."""
    kind = (complaint(read, data) or "").partition(":")[0]
    size = len(data) // 2
    while size and kind:
        start = 0
        while start < len(data):
            shorter = data[:start] + data[start + size :]
            if (complaint(read, shorter) or "").partition(":")[0] == kind:
                data = shorter
            else:
                start += size
        size //= 2
    return data


if __name__ == "__main__":
    sys.exit(main())
