"""Write deploy/constraints.txt: the exact version of everything that the image installs, as it is installed here.

python tools/constraints.py        writes
python tools/constraints.py -      prints
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

EXTRAS = ("web", "extraction", "fly", "kubernetes", "otel")
FILE = Path(__file__).parents[1] / "deploy" / "constraints.txt"
HEAD = "# Made by `python tools/constraints.py` from what the tests ran with. The image installs exactly these.\n"


def closure(name: str, extras: tuple[str, ...]) -> dict[str, str]:
    """Name -> version of all that this needs, itself left out."""
    found: dict[str, str] = {}
    todo = [(name, extras)]
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        for text in metadata.requires(one[0]) or []:
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*one[1], "")):
                found[_plain(requirement.name)] = metadata.version(requirement.name)
                todo.append((_plain(requirement.name), tuple(sorted(requirement.extras))))
    found.pop(name, None)
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def text() -> str:
    return HEAD + "".join(f"{name}=={version}\n" for name, version in sorted(closure("holdfast", EXTRAS).items()))


if __name__ == "__main__":
    if sys.argv[1:] == ["-"]:
        print(text(), end="")
    else:
        FILE.write_text(text())
