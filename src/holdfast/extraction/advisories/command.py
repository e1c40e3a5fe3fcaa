"""`holdfast advisories update|status`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from holdfast.extraction.advisories.database import Origin
from holdfast.extraction.advisories.errors import AdvisoriesError
from holdfast.extraction.advisories.status import status as read_status
from holdfast.extraction.advisories.update import update as bring

_database = click.option(
    "--database",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="HOLDFAST_ADVISORIES",
    default="holdfast-advisories.db",
    show_default=True,
    help="The file that holds the advisories.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="For programs.")


@click.group()
def advisories() -> None:
    """Bring in advisories, EPSS scores and the KEV catalogue; see how old they are."""


@advisories.command()
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@_database
@_as_json
def update(sources: tuple[str, ...], database: Path, as_json: bool) -> None:
    """Bring in OSV records, EPSS or KEV from files, folders, zips or http addresses.

    Example: holdfast advisories update all.zip
    """
    try:
        found = bring(database, sources)
    except (AdvisoriesError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    click.echo(f"Brought in {found.advisories:,} advisories, {found.epss:,} EPSS scores and {found.kev:,} KEV entries.")
    for reason, count in found.skipped.items():
        click.echo(f"Left out {count:,}: {reason}.")
    if found.not_covered:
        click.echo(f"Not matched here: advisories for {', '.join(found.not_covered)}.")


@advisories.command()
@_database
@_as_json
def status(database: Path, as_json: bool) -> None:
    """Tell what the database holds and how old it is; exit 1 where a scan would check nothing.

    Example: holdfast advisories status
    """
    found = read_status(database)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    else:
        for kind in ("advisories", "epss", "kev"):
            origin: Origin | None = getattr(found, kind)
            if origin:
                age = found.age_days[kind]
                click.echo(
                    f"{kind}: {origin.entries:,}, version {origin.version}, {age} days old, from {', '.join(origin.sources)}"
                )
        for ecosystem, count in found.ecosystems.items():
            click.echo(f"  {ecosystem}: {count:,}")
        for warning in found.warnings:
            click.echo(f"Warning: {warning}", err=True)
    if not found.usable:
        raise SystemExit(1)
