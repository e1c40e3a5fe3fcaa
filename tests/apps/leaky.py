"""Tasks that give secrets away in every way a task can. Each secret holds `BODY`, and the word that says where it was."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

from holdfast import Abort, Holdfast, current, step

BODY = "a1B2c3D4e5F6g7H8i9J0"
PASSWORD_VARIABLE = "WAREHOUSE_PASSWORD"
PASSWORD = 'correct "horse" battery'

hf = Holdfast()


def token(where: str) -> str:
    return f"ghp_{where}{BODY}"


def clone_url(where: str) -> str:
    return f"https://oauth2:{where}{BODY}@gitlab.com/acme/app.git"


def talk(where: str) -> None:
    run = current()
    run.log.info(
        f"cloning {clone_url(where)}", step=token("step"), url=clone_url("metadata"), nested=[{"password": f"p{BODY}"}]
    )
    run.log.warning(f"{os.environ.get(PASSWORD_VARIABLE, '')} and {{'Authorization': 'Bearer {BODY}'}}")
    run.progress(0.5, token("stage"))
    print(f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----")
    try:
        raise ConnectionError(token("traceback"))
    except ConnectionError:
        logging.getLogger("app").exception("captured %s", token("logging"))


def findings(where: str) -> dict[str, Any]:
    return {"url": clone_url(where), "db": {"password": f"p{BODY}", "env": os.environ.get(PASSWORD_VARIABLE, "")}, "rows": 3}


@hf.task(capture=("logging", "print"))
async def leak_result() -> Any:
    talk("result")
    kept = await step(token("stepname"), findings, "stepresult")
    return [findings("returned"), kept]


@hf.task(isolate=True, capture=("logging", "print"))
def leak_result_isolated() -> Any:
    talk("isolated")
    return findings("returned")


@hf.task(max_attempts=2, backoff=(0,))
def leak_error() -> None:
    try:
        raise ConnectionError(f"could not read from {clone_url('cause')} with {os.environ.get(PASSWORD_VARIABLE, '')}")
    except ConnectionError as error:
        raise ValueError(f"clone of {clone_url('error')} failed") from error


@hf.task
async def leak_code() -> None:
    raise Abort(f"refused {token('abort')}", code=token("code"))


@hf.task
async def leak_to_the_console() -> None:
    """What Python and asyncio print by themselves about errors that nobody took."""

    def fail_in_thread() -> None:
        raise RuntimeError(token("thread"))

    async def fail_alone() -> None:
        raise RuntimeError(token("task"))

    thread = threading.Thread(target=fail_in_thread)
    thread.start()
    thread.join()
    forgotten = asyncio.create_task(fail_alone())
    await asyncio.wait([forgotten])
    del forgotten
    logging.getLogger("holdfast").error("our own line with %s", token("ourlog"), exc_info=RuntimeError(token("ourtraceback")))


@hf.task
async def wait_for_nothing() -> None: ...
