"""Cloning: the files of a repository, by git, with nothing of the repository executed and no token left behind."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from holdfast import current
from holdfast.addresses import ascii_host, is_public
from holdfast.extraction.context import ExtractionContext
from holdfast.extraction.repositories import is_allowed
from holdfast.pipeline import Done, Failure, StepFailed, ToolResult

GB = 1_000_000_000
LOOK_SECONDS = 0.25
LOW_SPEED_SECONDS = 30
_UNREACHABLE = "Repository host unreachable - try again later"
_TOO_LARGE = "Repository is too large to scan (>{limit}GB)"
_NOT_FOUND = "Repository not found - it may have been deleted or made private"
_NOT_OURS = "Authentication failed - {reconnect}"

FAILURES = [
    # Order matters: a missing branch is "not found", too, and a host or repository may be called app-401.
    Failure(on="missing", message="git is not installed on this worker", code="git_missing"),
    Failure(on="timeout", message=_UNREACHABLE, code="host_unreachable"),
    Failure(
        pattern=r"^fatal: Remote branch (?P<branch>.+) not found in upstream origin",
        message="Branch '{branch}' not found in repository",
        code="branch_not_found",
    ),
    Failure(
        pattern=r"^fatal: .*The requested URL returned error: 429|^(remote|fatal): .*\brate limit",
        message="{provider} rate limit reached - wait 15 minutes and retry",
        code="rate_limited",
    ),
    Failure(
        pattern=r"^fatal: (Authentication failed for|could not read (Username|Password) for .*: terminal prompts disabled"
        r"|unable to update url base from redirection|.*The requested URL returned error: 40[13]$)",
        message=_NOT_OURS,
        code="auth_failed",
    ),
    Failure(pattern=r"^fatal: .*The requested URL returned error: 5\d\d$", message=_UNREACHABLE, code="host_unreachable"),
    Failure(
        pattern=r"^fatal: .*The requested URL returned error: 30\d$",
        message="Repository has moved - update its address",
        code="repository_moved",
    ),
    Failure(
        pattern=r"^fatal: (repository '.*' not found$|'.*' does not appear to be a git repository"
        r"|remote error: access denied or repository not exported|.*The requested URL returned error: (404|410)$)",
        message=_NOT_FOUND,
        code="repository_not_found",
    ),
    Failure(
        pattern=r"No space left on device|^error: unable to write file [^\n]*\n(.*\n)*fatal: unable to checkout working tree",
        message=_TOO_LARGE,
        code="repository_too_large",
    ),
    Failure(
        pattern=r"server certificate verification failed|gnutls_handshake\(\) failed|SSL certificate problem|SSL_ERROR",
        message="Repository host unreachable - its certificate could not be verified",
        code="host_untrusted",
    ),
    Failure(
        pattern=r"^fatal: .*(Could not resolve host|Failed to connect to|Couldn't connect to server|Operation too slow"
        r"|Connection timed out|Connection reset|Empty reply from server|Recv failure)",
        message=_UNREACHABLE,
        code="host_unreachable",
    ),
    Failure(pattern=r"^fatal: (fetch-pack: invalid index-pack output)", message=_TOO_LARGE, code="repository_too_large"),
    Failure(
        pattern=r"^fatal: (transport '.*' not allowed|Unable to find remote helper)|'remote-.*' is not a git command",
        message="Repository address cannot be used - it must begin with https://",
        code="address_invalid",
    ),
    Failure(
        pattern=r"^fatal: (Could not read from remote repository|the remote end hung up|early EOF|expected flush)",
        message=_UNREACHABLE,
        code="host_unreachable",
    ),
]


async def clone(context: ExtractionContext) -> Done:
    project = context.project
    if context.sign_in is not None:
        context.credentials = await context.sign_in()
    if not project.is_address:
        if not context.options.trusted:
            raise StepFailed("A folder of this machine can be extracted from the command line only", code="address_invalid")
        folder = _folder(project.source)
        if project.branch is None and not _is_bare(folder):
            context.checkout = folder
            context.commit = await _commit_of(context, folder)
            return Done("Folder opened")
        address, pinned = folder.as_uri(), list[str]()
    else:
        address, pinned = await _checked(context)
    context.checkout = context.workspace / "checkout"
    await _clone(context, address, pinned)
    context.commit = await _commit_of(context, context.checkout)
    if context.commit is None:
        # A page for signing in, sent with status 200, looks the same to git.
        raise StepFailed(
            "Repository is empty, or its host answered with a web page - check the address and the access",
            code="repository_empty",
        )
    context.history_is_there = context.options.full_history
    return Done("Repository cloned successfully")


async def _clone(context: ExtractionContext, address: str, pinned: list[str]) -> None:
    env, secrets = _environment(context, address)
    project, options = context.project, context.options
    argv = ["git", *(word for setting in [*_SETTINGS, *pinned] for word in ("-c", setting)), "clone", "--quiet", "--template="]
    argv += ["--no-recurse-submodules", "--no-tags", "--single-branch"]
    argv += [] if options.full_history else ["--depth=1"]
    argv += [f"--branch={project.branch}"] if project.branch else []
    cloning = asyncio.ensure_future(
        context.tool([*argv, "--", address, str(context.checkout)], env=env, secrets=secrets, timeout=context.step.timeout)
    )
    result = await _within_limit(context, cloning)
    result.check()


_SETTINGS = [
    "core.symlinks=false",  # a link to a file of this machine becomes a text
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "protocol.version=2",
    "http.lowSpeedLimit=1000",
    f"http.lowSpeedTime={LOW_SPEED_SECONDS}",
    "credential.helper=",
    "submodule.recurse=false",
]


def _environment(context: ExtractionContext, address: str) -> tuple[dict[str, str], dict[str, str]]:
    parts = urlsplit(address)
    env = {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_LFS_SKIP_SMUDGE": "1",
        "GIT_ALLOW_PROTOCOL": ":".join(["https", *(["http", "file"] if context.options.trusted else [])]),
    }
    if context.credentials is None or not context.project.is_address:
        return env, {}
    words = f"{context.credentials.user}:{context.credentials.token}"
    header = f"Authorization: Basic {base64.b64encode(words.encode()).decode()}"
    env |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"http.{parts.scheme}://{parts.netloc}/.extraHeader"}
    return env, {"GIT_CONFIG_VALUE_0": header}


async def _checked(context: ExtractionContext) -> tuple[str, list[str]]:
    """The address as git is to have it, and settings that tie git to the addresses that were looked at: a name may lead
    elsewhere a moment later, or for a program that spells it otherwise."""
    unusable = StepFailed("Repository address cannot be used - it must begin with https://", code="address_invalid")
    try:
        parts = urlsplit(context.project.source)
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username or parts.password:
            raise unusable
        host, port = ascii_host(parts.hostname), parts.port
    except ValueError:
        raise unusable from None
    if context.options.trusted:
        return context.project.source, []
    if parts.scheme != "https":
        raise unusable
    shown = f"[{host}]" if ":" in host else host
    address = parts._replace(netloc=shown if port is None else f"{shown}:{port}").geturl()
    if is_allowed(host, context.options.hosts_allowed):
        return address, ["http.followRedirects=false"]  # it may lead to a host that is not
    port = port or 443
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StepFailed(_UNREACHABLE, code="host_unreachable") from error
    addresses = {str(one[4][0]) for one in found}
    if not all(is_public(ipaddress.ip_address(one)) for one in addresses):
        raise StepFailed(
            f"{host} is a private address - an operator may add it to the hosts that are allowed", code="address_private"
        )
    resolved = ",".join(f"[{one}]" if ":" in one else one for one in sorted(addresses))
    return address, [f"http.curloptResolve={host}:{port}:{resolved}", "http.followRedirects=false"]


async def _within_limit(context: ExtractionContext, cloning: asyncio.Future[ToolResult]) -> ToolResult:
    """git has no limit of its own: look at the folder while it grows."""
    most = context.options.repository_gb_max * GB
    try:
        while not cloning.done():
            await asyncio.wait([cloning], timeout=LOOK_SECONDS)
            if await asyncio.to_thread(_bytes_below, context.checkout) > most:
                message = f"Repository is too large to scan (>{context.values['limit']}GB)"
                raise StepFailed(message, code="repository_too_large")
    finally:
        if not cloning.done():
            cloning.cancel()
            await asyncio.wait([cloning])
    return cloning.result()


def _bytes_below(folder: Path) -> int:
    total, waiting = 0, [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # git renames and removes while we look
    return total


async def _commit_of(context: ExtractionContext, folder: Path) -> str | None:
    if not (folder / ".git").exists():
        return None
    env = {"LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    # A folder that belongs to somebody else is read, too; nothing of its own settings runs for this question.
    argv = ["git", "-c", f"safe.directory={folder}", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        result = await context.tool(argv, env=env, timeout=30)
    except Exception as error:
        current().log.warning(f"The commit is not known: {error}", step=context.step.name)
        return None
    return result.stdout.strip() or None if result.ok else None


def _folder(source: str) -> Path:
    folder = Path(source).expanduser().resolve()
    if not folder.is_dir():
        raise StepFailed(f"There is no folder {source}", code="repository_not_found")
    return folder


def _is_bare(folder: Path) -> bool:
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and not (folder / ".git").exists()
