"""What mkdocs does beside its own work: pages that live outside docs/ join the site, and links between them keep working.

In the repository a link is a path from the file that has it, so that it works there too. In the site those pages have other
places; a link to a file that is in no page (source, manifests) becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
JOINED = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "fly.md": "project/fly.md",
    "bench/README.md": "project/benchmark.md",
    "bench/results/peers.md": "project/peers.md",
    "bench/results/peers.svg": "project/peers.svg",
}
"""Path from the root -> place in the site."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def place_of(path: str) -> str | None:
    """Where a file of the repository is in the site, if it is there."""
    if path in JOINED:
        return JOINED[path]
    return path.removeprefix("docs/") if path.startswith("docs/") and (ROOT / path).is_file() else None


def source_of(place: str) -> str:
    return next((path for path, joined in JOINED.items() if joined == place), f"docs/{place}")


def with_links_of_the_site(markdown: str, place: str) -> str:
    def changed(link: re.Match[str]) -> str:
        mark, text, target, anchor = link[1], link[2], link[3], link[4] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(place)), target))
        found = place_of(path)
        if found is None:
            if not (ROOT / path).exists():
                return link[0]  # broken: mkdocs says so
            return text
        return f"{mark}[{text}]({posixpath.relpath(found, posixpath.dirname(place) or '.')}{anchor})"

    return LINK.sub(changed, markdown)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for path, place in JOINED.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return with_links_of_the_site(markdown, page.file.src_uri)


def llms_of_the_site() -> str:
    """`docs/llms.txt`, which names pages as files of the repository, with the names that they have in the site."""
    text = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    return re.sub(r"(\]\([^)\s]+)\.md\)", r"\1.html)", with_links_of_the_site(text, "llms.txt"))


def on_post_build(config: Any) -> None:
    Path(config["site_dir"], "llms.txt").write_text(llms_of_the_site(), encoding="utf-8")
