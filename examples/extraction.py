"""See an extraction work, in a few seconds and without a network: python examples/extraction.py

Two bundled projects go through the whole pipeline on a temporary SQLite file, with what pip has installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import resources
from pathlib import Path


def holdfast(*arguments: str) -> None:
    print(f"\n$ holdfast {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "holdfast", *arguments], check=True, stderr=subprocess.STDOUT)


def main() -> None:
    with (
        resources.as_file(resources.files("holdfast.extraction.sample")) as sample,
        tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder,
    ):
        advisories = str(Path(folder, "advisories.db"))
        holdfast("advisories", "update", "--database", advisories, str(sample / "advisories"))
        for project in ("shop", "reports"):
            holdfast("extract", str(sample / project), "--advisories", advisories)
    print("\nYour turn:  holdfast extract PATH   or   holdfast extract https://github.com/you/project")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
