"""Small repositories to read, and short views of what was found in them."""

from __future__ import annotations

from pathlib import Path

from holdfast.extraction.model import Component, Inventory

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "extraction"


def write_files(root: Path, files: dict[str, str | bytes]) -> Path:
    """A folder with these files in it."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def short(component: Component) -> str:
    """`name@version`."""
    return f"{component.name}@{component.version}"


def direct(inventory: Inventory) -> set[str]:
    return {short(one) for one in inventory.components if one.direct is True}


def transitive(inventory: Inventory) -> set[str]:
    return {short(one) for one in inventory.components if one.direct is False}


def unknown(inventory: Inventory) -> set[str]:
    return {short(one) for one in inventory.components if one.direct is None}


def scopes(inventory: Inventory) -> dict[str, str]:
    return {short(one): one.scope for one in inventory.components}


def edges(inventory: Inventory) -> dict[str, list[str]]:
    """Only of the components that need others; purls without `pkg:type/`."""
    return {short(one): [purl.partition("/")[2] for purl in one.depends_on] for one in inventory.components if one.depends_on}


def codes(inventory: Inventory) -> list[tuple[str, str]]:
    return [(problem.manifest, problem.code) for problem in inventory.problems]
