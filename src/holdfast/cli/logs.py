"""`holdfast jobs logs`: what a job's runs have said, whole or as they say it, for people and for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli.call import Call, Command
from holdfast.cli.log_text import in_colour, log_text, run_heading
from holdfast.cli.output import json_text, printable, say
from holdfast.cli.shared import with_app
from holdfast.errors import RunNotFound
from holdfast.job import LogLine, Run, State
from holdfast.reading import LEVELS, log_filter, matches
from holdfast.store.protocol import LogFilter

PAGE_LINES = 1000
TAIL_MAX = 10_000


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    run_no: int | None
    all_runs: bool
    tail: int | None
    where: LogFilter


class Lines:
    """Writes lines as they come, in one of three forms; `run_no` may change on the way."""

    def __init__(self, form: str, headings: bool) -> None:
        self.count = 0
        self._form = form
        self._colour = form == "text" and in_colour()
        self._headings = headings
        self._run_no: int | None = None

    def write(self, run_no: int, lines: Sequence[LogLine]) -> None:
        if not lines:
            return
        if self._form == "text":
            if self._headings and run_no != self._run_no:
                click.echo(run_heading(run_no, colour=self._colour), color=self._colour)
            click.echo(log_text(lines, colour=self._colour), color=self._colour)
        elif self._form == "ndjson":
            objects = ({"run_no": run_no, **msgspec.structs.asdict(line)} for line in lines)
            click.echo("\n".join(map(json_text, objects)))
        else:
            click.echo((",\n" if self.count else "") + ",\n".join(map(json_text, lines)), nl=False)
        self._run_no = run_no
        self.count += len(lines)


def levels_of(text: str) -> tuple[str, ...]:
    levels = tuple(level.strip() for level in text.split(","))
    if not set(levels) <= set(LEVELS):
        raise click.BadParameter(f"{text!r:.50} is not a list such as warning,error; the levels are {', '.join(LEVELS)}")
    return levels


@click.command(cls=Command)
@click.argument("job_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on with new lines and attempts until the job ends.")
@click.option("--run", "run_no", type=int, metavar="N", help="Which run; the newest where none is named.")
@click.option("--all", "all_runs", is_flag=True, help="Every run, the first one first.")
@click.option("--tail", type=click.IntRange(1, TAIL_MAX), metavar="N", help="Begin with the last N lines of a run.")
@click.option("--level", "levels", type=levels_of, metavar="A,B", help=f"Only these: {', '.join(LEVELS)}.")
@click.option("--step", help="Only lines of this step.")
@click.option("--search", metavar="TEXT", help="Only lines with this text, in whatever case.")
@click.option("--format", "form", type=click.Choice(["text", "ndjson"]), help="NDJSON is one JSON object per line.")
@click.pass_obj
def logs(
    call: Call,
    job_id: str,
    follow: bool,
    run_no: int | None,
    all_runs: bool,
    tail: int | None,
    levels: tuple[str, ...] | None,
    step: str | None,
    search: str | None,
    form: str | None,
) -> None:
    """Print the log of a run, or follow a job's."""
    if all_runs and run_no is not None:
        raise click.UsageError("--all and --run exclude each other")
    where = log_filter(levels=levels or (), step=step, search=search)
    asked = Asked(job_id=job_id, run_no=run_no, all_runs=all_runs, tail=tail, where=where)
    if call.as_json and form is None and not follow and not all_runs:
        with_app(call, lambda hf: _print_object(hf, asked))
        return
    out = Lines(form or ("ndjson" if call.as_json else "text"), headings=all_runs or (follow and run_no is None))
    with_app(call, lambda hf: (_follow if follow else _print)(hf, asked, out))


async def _print(hf: Holdfast, asked: Asked, out: Lines) -> None:
    runs = await _runs(hf, asked)
    for run in runs:
        async for lines in _stored(hf, run, asked):
            out.write(run.run_no, lines)
    if not out.count:
        say(_nothing(runs, asked))


async def _print_object(hf: Holdfast, asked: Asked) -> None:
    """One JSON object, written page by page."""
    run = next(iter(await _runs(hf, asked)), None)
    head = json_text({"run_no": run and run.run_no, "run_id": run and run.run_id})
    click.echo(f'{head[:-1]},"lines":[', nl=False)
    out = Lines("array", headings=False)
    if run is not None:
        async for lines in _stored(hf, run, asked):
            out.write(run.run_no, lines)
    click.echo("]}")


async def _follow(hf: Holdfast, asked: Asked, out: Lines) -> None:
    job = await hf.get(asked.job_id)
    runs = await hf.runs(asked.job_id)
    if asked.all_runs:
        for run in reversed(runs[1:]):
            async for lines in _stored(hf, run, asked):
                out.write(run.run_no, lines)
    run_no = asked.run_no if asked.run_no is not None else runs[0].run_no if runs else job.run_no + 1
    after = 0
    while True:
        named = next((run for run in runs if run.run_no == run_no), None)
        if asked.tail is not None and named is not None:
            after = await _print_tail(hf, named, asked, out)
        async for line in hf.follow(asked.job_id, run_no=run_no, after=after):
            if matches(line, asked.where):
                out.write(run_no, [line])
        job = await hf.get(asked.job_id)
        if asked.run_no is not None or (job.state.ended and job.run_no <= run_no):
            break
        runs, run_no, after = [], run_no + 1, 0
    reason = f": {printable(job.error_message)}" if job.error_message and job.state is not State.COMPLETED else "."
    say(f"The job is {job.status}{reason}")


async def _print_tail(hf: Holdfast, run: Run, asked: Asked, out: Lines) -> int:
    """The last lines that match; the number after which to go on."""
    newest = await hf.logs(run.run_id, newest=True, limit=1)
    if not newest:
        return 0
    async for lines in _stored(hf, run, asked, before=newest[0].no + 1):
        out.write(run.run_no, lines)
    return newest[0].no


async def _runs(hf: Holdfast, asked: Asked) -> list[Run]:
    runs = await hf.runs(asked.job_id)
    if asked.all_runs:
        return runs[::-1]
    if asked.run_no is None:
        return runs[:1]
    found = [run for run in runs if run.run_no == asked.run_no]
    if not found:
        there = ", ".join(str(run.run_no) for run in reversed(runs)) or "none yet"
        raise RunNotFound(f"Job {asked.job_id} has no run {asked.run_no}; its runs are: {there}.")
    return found


async def _stored(hf: Holdfast, run: Run, asked: Asked, before: int | None = None) -> AsyncIterator[list[LogLine]]:
    """Page by page; nothing but a page is in memory."""
    where = asked.where
    read = partial(hf.logs, run.run_id, before=before, levels=where.levels, step=where.step, search=where.search)
    if asked.tail is not None:
        yield await read(newest=True, limit=asked.tail)
        return
    after = 0
    while lines := await read(after=after, limit=PAGE_LINES):
        yield lines
        after = lines[-1].no


def _nothing(runs: Sequence[Run], asked: Asked) -> str:
    if not runs:
        return "This job has not run yet."
    filtered = asked.where != LogFilter()
    return "No line matches; without the filters there may be some." if filtered else "This run has logged nothing."
