"""`holdfast adopt`: put a table of one's own under the reaper."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.adopt import setup
from holdfast.adopt.table import AdoptedTable
from holdfast.app import Holdfast
from holdfast.cli.call import Call, Command
from holdfast.cli.output import print_json, printable, say
from holdfast.cli.shared import pairs, with_app


@click.command(cls=Command)
@click.option("--table", metavar="NAME", help="As the database writes it, with its schema where needed.")
@click.option("--map", "columns", multiple=True, metavar="OURS=THEIRS", help="A column that is called otherwise; repeatable.")
@click.option("--word", "words", multiple=True, metavar="OURS=THEIRS", help="A status word that differs; repeatable.")
@click.option("--events", metavar="NAME", default="job_events", show_default=True, help="Where events are written.")
@click.option("--apply", "applies", is_flag=True, help="Do it; without this, only show the SQL.")
@click.option("--remove", is_flag=True, help="No longer look after this table; it stays as it is.")
@click.pass_obj
def adopt(
    call: Call, table: str | None, columns: Sequence[str], words: Sequence[str], events: str, applies: bool, remove: bool
) -> None:
    """Put a job table of your own under the reaper; without --table, list those that are.

    Example: holdfast adopt --table asr_jobs --map status=state --word running=processing --apply
    """
    if table is None:
        if columns or words or applies or remove:
            raise click.UsageError("Say which table with --table.")
        with_app(call, lambda hf: _list(call, hf))
        return
    adopted = AdoptedTable(table, columns=pairs("--map", columns), words=pairs("--word", words), events=events)
    work = _remove if remove else _apply if applies else _show
    with_app(call, lambda hf: work(call, hf, adopted))


async def _show(call: Call, hf: Holdfast, adopted: AdoptedTable) -> None:
    statements = await setup.plan(hf, adopted)
    _tell(call, adopted, statements, applied=False)
    if not call.as_json:
        say("Nothing was changed; run it with --apply.")


async def _apply(call: Call, hf: Holdfast, adopted: AdoptedTable) -> None:
    _tell(call, adopted, await setup.adopt(hf, adopted), applied=True)
    if not call.as_json:
        say(f"{printable(adopted.table)} is under the reaper.")


async def _remove(call: Call, hf: Holdfast, adopted: AdoptedTable) -> None:
    await setup.forget(hf, adopted.table)
    if call.as_json:
        print_json({"table": adopted.table, "removed": True})
    else:
        say(f"{printable(adopted.table)} is no longer under the reaper.")


async def _list(call: Call, hf: Holdfast) -> None:
    found = await setup.stored(hf.store)
    if call.as_json:
        rows = [{"table": one.table, "columns": one.columns, "words": one.words, "events": one.events} for one in found]
        print_json({"adopted": rows})
    elif found:
        click.echo("\n".join(printable(one.table) for one in found))
    else:
        say("No table is adopted.")


def _tell(call: Call, adopted: AdoptedTable, statements: list[str], *, applied: bool) -> None:
    if call.as_json:
        print_json({"table": adopted.table, "statements": statements, "applied": applied})
    elif statements:
        click.echo("\n".join(f"{printable(sql)};" for sql in statements))
    else:
        say("The table has all that is needed.")
