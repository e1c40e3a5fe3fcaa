"""`holdfast init`: a small application to start from."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.call import Call, Command
from holdfast.cli.failures import Refused
from holdfast.cli.output import print_json

TASKS = '''"""Tasks: ordinary functions that can also be enqueued."""

from __future__ import annotations

import asyncio

from holdfast import Holdfast, current

hf = Holdfast()


@hf.task
async def greet(name: str = "world") -> str:
    return f"Hello, {name}!"


@hf.task(max_attempts=3, backoff=(1, 5))
async def flaky() -> str:
    """Fails the first time, so that you can watch a retry."""
    if current().attempt == 1:
        raise ConnectionError("the other side hung up")
    return f"worked at attempt {current().attempt}"


@hf.task(max_attempts=1)
async def press_retry() -> str:
    """Fails the first time, and is not tried again by itself: press Retry on its page, or `holdfast jobs retry ID`.

    `holdfast dev` enqueues it once, when it makes the database, so that there is something to mend.
    """
    if current().run_no == 1:
        raise RuntimeError("this was meant to fail: press Retry, and the next run works")
    current().log.success("mended")
    return f"worked in run {current().run_no}"


@hf.task(queue="reports", timeout=60)
async def report(pages: int) -> dict[str, int]:
    """Takes a while and says how far it is."""
    run = current()
    for page in range(1, pages + 1):
        await asyncio.sleep(0.2)
        run.log.info(f"page {page} of {pages}")
        run.progress(page / pages, "writing")
    return {"pages": pages}
'''

SEEDED = "press_retry"
"""The task that `holdfast dev` enqueues in a new database."""

SETTINGS = """# Settings of Holdfast. Stronger than this file: HOLDFAST_* in the environment, and arguments of Holdfast(...).
database_url = "sqlite:///holdfast.db"
# For more than one machine: postgresql://user:password@host:5432/database
"""


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def init(call: Call, folder: Path) -> None:
    """Write a small tasks.py and holdfast.toml to start from.

    Example: holdfast init demo
    """
    files = {folder / "tasks.py": TASKS, folder / "holdfast.toml": SETTINGS}
    for path in files:
        if path.exists():
            raise Refused(f"{path} is already there and is left as it is; choose an empty folder: holdfast init DIR.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise Refused(f"{error.filename or folder} cannot be written: {error.strerror}.") from error
    if call.as_json:
        print_json({"written": [str(path) for path in files]})
        return
    click.echo(f"Wrote {' and '.join(str(path) for path in files)}. Next:\n")
    enter = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
    click.echo(
        f"  {enter}holdfast dev                    # worker, reaper, API and dashboard on an SQLite file; leave it running"
    )
    click.echo(f"  {enter}holdfast enqueue flaky --wait   # in another terminal: fails once, then works")
    click.echo(f"  {enter}holdfast jobs list              # what happened")
