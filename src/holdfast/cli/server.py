"""`holdfast server`: the HTTP API and the dashboard."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.apps import app_for_database
from holdfast.cli.call import Call, Command
from holdfast.cli.output import say
from holdfast.cli.process_log import log_to_stderr
from holdfast.errors import ConfigError


@click.command(cls=Command)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: all addresses of this machine.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8080, show_default=True, help="0: any that is free.")
@click.option(
    "--forwarded-allow-ips",
    envvar="FORWARDED_ALLOW_IPS",
    default="127.0.0.1,::1",
    show_default=True,
    metavar="ADDRESSES",
    help="Proxies whose X-Forwarded-For and X-Forwarded-Proto are trusted: addresses and networks, comma-separated.",
)
@click.pass_obj
def server(call: Call, host: str, port: int, forwarded_allow_ips: str) -> None:
    """Serve the HTTP API and the dashboard until stopped; recovers jobs of dead workers as well."""
    try:
        from holdfast.web.serving import serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"The server needs {error.name}, which is not installed: pip install 'holdfast[web]'.") from error
    hf = app_for_database(call)
    log_to_stderr(hf.settings.log_format)
    asyncio.run(serve(hf, host, port, say, trusted_proxies=forwarded_allow_ips))
